//go:build e2e

package e2e

import (
	"testing"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestJobManagerRestart kills the JobManager of a highly available cluster, once alone and once together
// with a TaskManager. The job is taken up from its last checkpoint and comes to the exact result.
func TestJobManagerRestart(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 2, Slots: 1, HighAvailability: true})
	l := ledger{keys: 500, records: 150_000, rate: 3_000}
	job := e.submit(e.upload(), l.run(2))
	for round := range 2 {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		if round == 1 {
			e.replaceTaskManager()
		}
		e.must(e.cluster.JobManager().Kill())
		e.must(e.cluster.StartJobManager(e.ctx))
		e.must(e.cluster.AwaitTaskManagers(e.ctx, 2))
		e.awaitRunning(job)
		stats, err := e.cluster.Checkpoints(e.ctx, job)
		e.must(err)
		if stats.Latest.Restored == nil {
			t.Fatal("the new JobManager did not restore a checkpoint: the test shows nothing")
		}
		t.Logf("restored from checkpoint %d", stats.Latest.Restored.ID)
	}
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
}
