//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestPyFlink runs a job written in Python on RocksDB and on FlinkNDB, there with a killed TaskManager. Its
// results must be the same.
func TestPyFlink(t *testing.T) {
	const records = 30_000
	if _, err := os.Stat(absolute(t, ".cache/pyflink/complete")); err != nil {
		t.Skipf("what PyFlink needs is not installed, see scripts/install-pyflink: %v", err)
	}
	python := absolute(t, ".cache/pyflink/bin/python")
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 2, Slots: 2, TaskManagerMemory: "1600m", Config: map[string]string{
		"execution.checkpointing.interval":    "2 s",
		"taskmanager.memory.managed.fraction": "0.3", // Python's workers live there, and RocksDB
		"python.executable":                   python,
		"python.client.executable":            python,
		"python.fn-execution.bundle.time":     "200",
		"python.pythonpath":                   absolute(t, ".cache/flink/2.3.0"),
	}})
	run := func(backend string, rate int) (job, output string) {
		output = filepath.Join(t.TempDir(), "out")
		job, err := e.cluster.SubmitPython(e.ctx, python, absolute(t, "tests/e2e/pyflink/orders.py"),
			map[string]string{"state.backend.type": backend, "parallelism.default": "2"},
			strconv.Itoa(records), strconv.Itoa(rate), output)
		e.must(err)
		return job, output
	}
	job, output := run("rocksdb", 0)
	e.awaitFinished(job)
	expected := changelog(t, output)
	for _, query := range []string{"history", "spread"} {
		if n := len(expected[query]); n != 100 {
			t.Fatalf("%s: %d results of 100 keys", query, n)
		}
	}
	job, output = run("org.flinkndb.NdbStateBackendFactory", 1_000)
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 3))
	e.replaceTaskManager()
	e.awaitFinished(job)
	found := changelog(t, output)
	for query := range expected {
		agree(t, query, expected[query], found[query])
	}
}
