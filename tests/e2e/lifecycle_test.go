//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestCheckpointsRescaleAndSavepoints takes one job through its life: cancelled and started from a
// retained checkpoint with more subtasks (CLAIM), then with fewer (NO_CLAIM), then from a canonical
// and a native savepoint. At the end the result is exact and the server lets go of what was released.
func TestCheckpointsRescaleAndSavepoints(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 3})
	l := ledger{keys: 500, records: 150_000, rate: 3_000}
	jar := e.upload()
	job := e.submit(jar, l.run(1))
	for _, step := range []struct {
		parallelism int
		claim       string
	}{{3, "CLAIM"}, {2, "NO_CLAIM"}} {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		path := e.cancelWithCheckpoint(job)
		run := l.run(step.parallelism)
		run.SavepointPath, run.ClaimMode = path, step.claim
		t.Logf("parallelism %d from %s (%s)", step.parallelism, path, step.claim)
		job = e.submit(jar, run)
	}
	for _, format := range []string{"CANONICAL", "NATIVE"} {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 1))
		path, err := e.cluster.Savepoint(e.ctx, job, format, true)
		e.must(err)
		run := l.run(3)
		run.SavepointPath = path
		t.Logf("%s savepoint %s", format, path)
		job = e.submit(jar, run)
	}
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
}

// cancelWithCheckpoint cancels a job and returns its last retained checkpoint.
func (e *environment) cancelWithCheckpoint(job string) string {
	e.t.Helper()
	e.must(e.cluster.Cancel(e.ctx, job))
	stats, err := e.cluster.Checkpoints(e.ctx, job)
	e.must(err)
	if stats.Latest.Completed == nil {
		e.t.Fatal("no completed checkpoint")
	}
	return stats.Latest.Completed.ExternalPath
}

// checkGarbage has the server collect, and demands that nothing unreachable is left. Flink discards checkpoints in
// the background, also after a job has ended: what it releases between collection and check is for the next one.
func (e *environment) checkGarbage() {
	e.t.Helper()
	var left error
	if err := flinkcluster.Poll(e.ctx, 30*time.Second, "a store without garbage", func() bool {
		left = e.garbageAfterCollection()
		return left == nil
	}); err != nil {
		e.t.Error(errors.Join(err, left))
	}
}

// awaitEmptyStore demands that no row is left once Flink has released everything.
func (e *environment) awaitEmptyStore() {
	e.t.Helper()
	var left error
	if err := flinkcluster.Poll(e.ctx, 30*time.Second, "an empty store", func() bool {
		left = e.server.CheckEmpty(e.ctx)
		return left == nil
	}); err != nil {
		snapshots, listErr := e.server.Command(e.ctx, "snapshots")
		e.t.Errorf("%v\n%s", errors.Join(err, left, listErr), snapshots)
	}
}

func (e *environment) garbageAfterCollection() error {
	if _, err := e.server.Command(e.ctx, "gc"); err != nil {
		return err
	}
	var report map[string]string
	if err := e.server.Ask(e.ctx, &report, "gc", "--check"); err != nil {
		return err
	}
	for _, field := range []string{"removed_rows", "removed_versions", "dropped_row_spaces", "expired_sessions"} {
		if report[field] != "0" {
			return fmt.Errorf("garbage after a collection: %v", report)
		}
	}
	return nil
}

// TestZombieIsFenced freezes a TaskManager until its tasks run elsewhere, then lets it go on: it must
// not be able to change anything.
func TestZombieIsFenced(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 2, Slots: 1, Config: map[string]string{"heartbeat.timeout": "5000"}})
	l := ledger{keys: 200, records: 60_000, rate: 2_000}
	job := e.submit(e.upload(), l.run(1))
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
	for _, p := range e.cluster.TaskManagers() {
		e.must(p.Signal(syscall.SIGSTOP))
		e.must(e.cluster.AwaitTaskManagers(e.ctx, 1))
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		e.must(p.Signal(syscall.SIGCONT))
		e.must(e.cluster.AwaitTaskManagers(e.ctx, 2))
	}
	e.awaitFinished(job)
	e.verify(l)
}

// TestStoreDoesNotGrow takes 200 checkpoints of a state whose size stays the same, and looks at the
// number of versions in the store meanwhile. It goes up and down, with the job's own rows and between two
// sweeps, so the peaks of both halves are compared: what leaks would double.
func TestStoreDoesNotGrow(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 1, Config: map[string]string{"execution.checkpointing.interval": "100 ms"}},
		"--sweep-interval", "1s")
	l := ledger{keys: 300, records: 10_000_000, rate: 2_000}
	job := e.submit(e.upload(), l.run(1))
	e.awaitRunning(job)
	const looks = 10
	var peaks [2]int // of the first and the second half
	for i := range looks {
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 20))
		rows, versions := e.countRows()
		t.Logf("after %d checkpoints: %d rows, %d versions", 20*(i+1), rows, versions)
		half := 2 * i / looks
		peaks[half] = max(peaks[half], versions)
	}
	if peaks[1] > peaks[0]*3/2 {
		t.Fatalf("the store grows: up to %d versions in the first 100 checkpoints, up to %d in the second", peaks[0], peaks[1])
	}
	e.must(e.cluster.Cancel(e.ctx, job))
}

func (e *environment) countRows() (rows, versions int) {
	e.t.Helper()
	rows, versions, err := e.server.CountRows(e.ctx)
	e.must(err)
	return rows, versions
}
