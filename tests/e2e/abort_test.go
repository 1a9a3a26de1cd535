//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestAbortedCheckpoints freezes the server until checkpoints have timed out, several times. The job goes
// on, later checkpoints contain what the aborted ones had flushed, and a killed TaskManager is restored
// from one of them.
func TestAbortedCheckpoints(t *testing.T) {
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"execution.checkpointing.timeout":                      "1 s",
		"execution.checkpointing.tolerable-failed-checkpoints": "1000",
	}})
	l := ledger{keys: 500, records: 150_000, rate: 3_000}
	job := e.submit(e.upload(), l.run(2))
	for range 3 {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		before, err := e.cluster.Checkpoints(e.ctx, job)
		e.must(err)
		e.must(e.server.Freeze())
		e.must(flinkcluster.Poll(e.ctx, time.Minute, "an aborted checkpoint", func() bool {
			now, err := e.cluster.Checkpoints(e.ctx, job)
			return err == nil && now.Counts.Failed > before.Counts.Failed
		}))
		e.must(e.server.Thaw())
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 1))
		e.replaceTaskManager()
	}
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
}
