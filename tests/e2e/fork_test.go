//go:build e2e

package e2e

import (
	"testing"

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
