//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestFork starts a second job from a native savepoint of a job that goes on. Nothing is copied; both work on
// what they have in common, a TaskManager of both is killed, and both come to the exact result.
func TestFork(t *testing.T) {
	// A checkpoint that was under way when the TaskManager was killed leaves a snapshot that is kept for a while.
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 2, Slots: 2}, "--abandoned-retention", "1s")
	l := ledger{keys: 300, records: 60_000, rate: 1_500}
	jar := e.upload()
	parent := e.submit(jar, l.run(2))
	e.awaitRunning(parent)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, parent, 3))
	savepoint, err := e.cluster.Savepoint(e.ctx, parent, "NATIVE", false)
	e.must(err)
	before, _ := e.countRows()
	run := l.run(2)
	run.SavepointPath, run.ClaimMode = savepoint, "NO_CLAIM"
	child := e.submit(jar, run)
	e.awaitRunning(child)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, child, 2))
	after, _ := e.countRows()
	t.Logf("%d rows before the fork, %d while both work", before, after)
	e.replaceTaskManager()
	e.awaitFinished(parent)
	e.awaitFinished(child)
	e.verify(l)
	e.checkGarbage()
	e.must(e.cluster.DisposeSavepoint(e.ctx, savepoint))
	e.awaitEmptyStore()
}

// TestForkBecomesIndependent flattens a job that was started from a running job's savepoint. Then the parent is
// cancelled and all of its snapshots are released: nothing of its row spaces may stay, and the child goes on, survives
// the loss of a TaskManager and comes to the exact result.
func TestForkBecomesIndependent(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 2, Slots: 2},
		"--abandoned-retention", "1s", "--sweep-interval", "1s", "--flatten-delay", "0s", "--flatten-rate", "1000000000")
	l := ledger{keys: 300, records: 240_000, rate: 1_500} // the parent would take minutes
	jar := e.upload()
	parent := e.submit(jar, l.run(2))
	e.awaitRunning(parent)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, parent, 3))
	savepoint, err := e.cluster.Savepoint(e.ctx, parent, "NATIVE", false)
	e.must(err)
	faster := l
	faster.rate = 4_000
	run := faster.run(2)
	run.SavepointPath, run.ClaimMode = savepoint, "NO_CLAIM"
	child := e.submit(jar, run)
	e.awaitRunning(child)
	e.awaitFlattened(child)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, child, 2))
	e.must(e.cluster.Cancel(e.ctx, parent))
	e.releaseSnapshots(parent)
	e.awaitSpacesOf(child)
	e.checkGarbage()
	e.replaceTaskManager()
	e.awaitFinished(child)
	e.verify(l)
	e.checkGarbage()
}

// awaitFlattened waits until each session of a job sees a single row space.
func (e *environment) awaitFlattened(job string) {
	e.t.Helper()
	e.must(flinkcluster.Poll(e.ctx, time.Minute, "a flattened fork", func() bool {
		list, err := e.sessions()
		if err != nil {
			e.t.Fatal(err)
		}
		sessions, spaces := 0, 0
		for _, s := range list {
			if s.JobID == job {
				sessions, spaces = sessions+1, spaces+len(s.RowSpaces)
			}
		}
		return sessions > 0 && spaces == sessions
	}))
}

// releaseSnapshots releases all snapshots of a job, as an administrator would when Flink has lost them.
func (e *environment) releaseSnapshots(job string) {
	e.t.Helper()
	released, err := e.releaseListed("--job", job)
	e.must(err)
	if released == 0 {
		e.t.Fatalf("job %s has no snapshots", job)
	}
}

// awaitSpacesOf waits until there are no row spaces but those that a job has made.
func (e *environment) awaitSpacesOf(job string) {
	e.t.Helper()
	var list struct {
		RowSpaces []struct {
			Job string `json:"created_by_job"`
		} `json:"row_spaces"`
	}
	if err := flinkcluster.Poll(e.ctx, 30*time.Second, "row spaces of one job", func() bool {
		if _, err := e.server.Command(e.ctx, "gc"); err != nil {
			e.t.Fatal(err)
		}
		e.must(e.server.Ask(e.ctx, &list, "spaces"))
		return len(list.RowSpaces) > 0 && !slices.ContainsFunc(list.RowSpaces, func(s struct {
			Job string `json:"created_by_job"`
		}) bool {
			return s.Job != job
		})
	}); err != nil {
		e.t.Fatalf("%v, job %s: %+v", err, job, list)
	}
}

// TestTimeTravel restores an older one of the retained checkpoints: what came after it has never been, and is
// swept away.
func TestTimeTravel(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"execution.checkpointing.num-retained": "100",
	}}, "--abandoned-retention", "1s", "--sweep-interval", "1s")
	l := ledger{keys: 300, records: 40_000, rate: 2_000}
	jar := e.upload()
	job := e.submit(jar, l.run(2))
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
	stats, err := e.cluster.Checkpoints(e.ctx, job)
	e.must(err)
	older := stats.Latest.Completed.ExternalPath
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
	e.must(e.cluster.Cancel(e.ctx, job))
	run := l.run(2)
	run.SavepointPath, run.ClaimMode = older, "NO_CLAIM"
	job = e.submit(jar, run)
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
}
