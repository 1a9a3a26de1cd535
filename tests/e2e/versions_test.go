//go:build e2e

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestFlinkVersions runs the ledger job on other Flink versions than the one that most tests use, kills a
// TaskManager, and demands the exact result.
func TestFlinkVersions(t *testing.T) {
	for version, config := range map[string]map[string]string{
		"2.2.1": nil,
		// 1.20 takes the backend under its old key as well.
		flink120: {"state.backend.type": "", "state.backend": "org.flinkndb.NdbStateBackendFactory"},
	} {
		t.Run(version, func(t *testing.T) {
			e := newEnvironment(t, flinkcluster.Options{Home: flinkVersion(t, version), TaskManagers: 2, Slots: 1, Config: config})
			l := ledger{keys: 300, records: 60_000, rate: 3_000}
			job := e.submit(e.upload(), l.run(2))
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
			e.replaceTaskManager()
			e.awaitFinished(job)
			e.verify(l)
			e.checkGarbage()
		})
	}
}

// moveTo stops the cluster and goes on with another one over the same server.
func (e *environment) moveTo(opt flinkcluster.Options) {
	e.t.Helper()
	e.must(e.cluster.Stop())
	opt.Dir = filepath.Join(e.t.TempDir(), "flink")
	opt.Jars = append(opt.Jars, shimFor(e.t, opt.Home))
	next, err := flinkcluster.Start(e.ctx, opt)
	e.must(err)
	e.t.Cleanup(func() {
		if err := next.Stop(); err != nil {
			e.t.Error(err)
		}
	})
	e.cluster = next
}

// TestNativeSnapshotOnOtherBackends goes on with a job on RocksDB and on the heap, with another parallelism, from a
// native savepoint and a retained checkpoint. The cluster has the shim's jar, no word of it in its configuration.
func TestNativeSnapshotOnOtherBackends(t *testing.T) {
	for _, c := range []struct {
		version, backend string
		parallelism      int
		checkpoint       bool
	}{
		{flink2, "rocksdb", 3, false},
		{flink120, "hashmap", 1, true},
	} {
		t.Run(c.backend, func(t *testing.T) {
			home := flinkVersion(t, c.version)
			e := newEnvironment(t, flinkcluster.Options{Home: home, Slots: 2})
			l := ledger{keys: 100, records: 40_000, rate: 2_000}
			job := e.submit(e.upload(), l.run(2))
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
			run := l.run(c.parallelism)
			if c.checkpoint {
				run.SavepointPath, run.ClaimMode = e.cancelWithCheckpoint(job), "CLAIM"
			} else {
				var err error
				run.SavepointPath, err = e.cluster.Savepoint(e.ctx, job, "NATIVE", true)
				e.must(err)
			}
			e.moveTo(flinkcluster.Options{Home: home, Slots: c.parallelism, Config: map[string]string{
				"state.backend.type": c.backend, "execution.checkpointing.interval": "500 ms",
			}})
			job = e.submit(e.upload(), run)
			e.awaitFinished(job)
			e.verify(l)
			if c.checkpoint { // it was claimed, so Flink discards it after the next one
				e.awaitEmptyStore()
			}
		})
	}
}

// TestUpgradeFlink stops a job on Flink 1.20 with a savepoint, of either format, and goes on with it on Flink
// 2: state written by the older line is read by the newer one, and nothing is lost.
func TestUpgradeFlink(t *testing.T) {
	for _, format := range []string{"NATIVE", "CANONICAL"} {
		t.Run(format, func(t *testing.T) {
			e := newEnvironment(t, flinkcluster.Options{Home: flinkVersion(t, flink120), TaskManagers: 1, Slots: 2})
			l := ledger{keys: 300, records: 40_000, rate: 2_000}
			job := e.submit(e.upload(), l.run(2))
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
			savepoint, err := e.cluster.Savepoint(e.ctx, job, format, true)
			e.must(err)
			e.moveTo(flinkcluster.Options{Home: flinkVersion(t, flink2), Slots: 2, Config: e.config})
			run := l.run(2)
			run.SavepointPath = savepoint
			job = e.submit(e.upload(), run)
			e.awaitFinished(job)
			e.verify(l)
		})
	}
}
