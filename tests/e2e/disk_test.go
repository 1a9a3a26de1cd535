//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/smalldisk"
)

// smallDisk makes a disk that ends with the test.
func smallDisk(t *testing.T, bytes int64) (*smalldisk.Disk, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fndb-disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	disk, err := smalldisk.Mount(dir, bytes)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return disk, nil
}

// TestFullDisk fills the disk of a server under a job: the server ends, and does not start either, and says where.
// Once there is room and it is started again, the job comes to the exact result.
func TestFullDisk(t *testing.T) {
	disk, err := smallDisk(t, 512<<20)
	if err != nil {
		t.Skip(err)
	}
	e := newEnvironmentOn(t, "pebble:"+filepath.Join(disk.Dir(), "store"), flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"execution.checkpointing.tolerable-failed-checkpoints": "1000",
	}})
	// The ballast has the server ask for more room soon.
	l := ledger{keys: 300, records: 60_000, rate: 1_500, payload: 20_000}
	job := e.submit(e.upload(), l.run(2))
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
	e.must(flinkcluster.Poll(e.ctx, 2*time.Minute, "a server that ends", func() bool {
		e.must(disk.Fill()) // again and again: what the store frees is gone at once
		return !e.server.Running()
	}))
	e.demandDiskFull(e.serverLog())
	err = e.server.Restart(e.ctx)
	if err == nil {
		t.Fatal("the server starts on a full disk")
	}
	e.demandDiskFull(err.Error())
	e.must(disk.Free())
	e.must(e.server.Restart(e.ctx))
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
}

func (e *environment) serverLog() string {
	e.t.Helper()
	raw, err := os.ReadFile(e.server.LogFile())
	e.must(err)
	return string(raw)
}

// demandDiskFull looks for the message that tells an operator what to do where, and for no flood of it.
func (e *environment) demandDiskFull(message string) {
	e.t.Helper()
	for _, word := range []string{e.server.StoreDir(), "no space left on device"} {
		if !strings.Contains(message, word) {
			e.t.Errorf("the server does not say %q: %.3000s", word, message)
		}
	}
	if n := strings.Count(message, "no space left"); n > 20 {
		e.t.Errorf("the server says %d times that the disk is full", n)
	}
}
