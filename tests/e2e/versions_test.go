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
			e.must(e.cluster.Stop())

			newer, err := flinkcluster.Start(e.ctx, flinkcluster.Options{
				Home: flinkVersion(t, flink2), Dir: filepath.Join(t.TempDir(), "flink"), Jars: []string{shimFor(t, flinkVersion(t, flink2))},
				Slots: 2, Config: e.config,
			})
			e.must(err)
			t.Cleanup(func() {
				if err := newer.Stop(); err != nil {
					t.Error(err)
				}
			})
			e.cluster = newer
			run := l.run(2)
			run.SavepointPath = savepoint
			job = e.submit(e.upload(), run)
			e.awaitFinished(job)
			e.verify(l)
		})
	}
}
