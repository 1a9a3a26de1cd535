//go:build e2e

package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/ndb"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

// startNDB runs a cluster with two data nodes that hold the same, and two MySQL servers.
func startNDB(t *testing.T) *ndb.Cluster {
	t.Helper()
	ndb.Require(t, ndb.TestNDBVariable)
	dir, err := os.MkdirTemp("", "fndb-ndb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // half a minute on an idle machine
	defer cancel()
	cluster, err := ndb.Start(ctx, ndb.Options{Dir: filepath.Join(dir, "c"), DataNodes: 2, Replicas: 2, MySQLServers: 2, DataMemory: "512M"})
	ndb.SkipIfAbsent(t, err)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.KillAll(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// TestStateMachineOnNDB runs Flink's example while a data node, each MySQL server, the FlinkNDB server and a
// TaskManager are killed, and demands that no alert is printed.
func TestStateMachineOnNDB(t *testing.T) {
	database := startNDB(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := newEnvironmentOn(t, database.URL(), flinkcluster.Options{TaskManagers: 2, Slots: 1})
	jar, err := e.cluster.Upload(e.ctx, absolute(t, ".cache/flink/examples-2.3.0.jar"))
	e.must(err)
	job := e.submit(jar, stateMachineRun("0.0"))
	node := database.DataNodeIDs()[random.IntN(2)]
	for _, fault := range []struct {
		name      string
		do, amend func() error
	}{
		{"a data node", func() error { return database.KillDataNode(node) }, func() error { return database.StartDataNode(e.ctx, node) }},
		{"a MySQL server", func() error { return database.KillMySQL(1) }, func() error { return database.StartMySQL(e.ctx, 1) }},
		{"the server", func() error { e.killSomething(random, 1); return nil }, nil},
		{"a TaskManager", func() error { e.killSomething(random, 0); return nil }, nil},
		{"the other MySQL server", func() error { return database.KillMySQL(2) }, nil},
	} {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) // the moment is to be random
		t.Logf("kill %s", fault.name)
		e.must(fault.do())
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		if fault.amend != nil {
			e.must(fault.amend())
		}
	}
	e.must(e.cluster.Cancel(e.ctx, job))
	if n := e.alerts(); n > 0 {
		t.Fatalf("%d alerts without errors in the input", n)
	}
}

// TestAllOfNDBIsLost kills every process of the database, and the server, right after a checkpoint has
// completed. With durability=disk the job goes on from that checkpoint and comes to the exact result.
func TestAllOfNDBIsLost(t *testing.T) {
	database := startNDB(t)
	e := newEnvironmentOn(t, database.URL("durability=disk"), flinkcluster.Options{TaskManagers: 1, Slots: 2})
	l := ledger{keys: 300, records: 120_000, rate: 2_000}
	job := e.submit(e.upload(), l.run(2))
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 3))
	before, err := e.cluster.Checkpoints(e.ctx, job)
	e.must(err)
	e.must(database.KillAll())
	e.must(e.server.Kill())
	e.replaceTaskManager() // so that the job must restore
	e.must(database.Restart(e.ctx))
	e.must(e.server.Restart(e.ctx))
	e.awaitRunning(job)
	after, err := e.cluster.Checkpoints(e.ctx, job)
	e.must(err)
	if after.Latest.Restored == nil || after.Latest.Restored.ID < before.Latest.Completed.ID {
		t.Fatalf("restored from %v, checkpoint %d had completed", after.Latest.Restored, before.Latest.Completed.ID)
	}
	t.Logf("restored from checkpoint %d", after.Latest.Restored.ID)
	e.awaitFinished(job)
	e.verify(l)
}

// TestSessionsMoveBetweenServers has two servers over one database. Each is killed in turn, and stays away
// while the job works with the other. The job never restarts, and its checkpoints go on.
func TestSessionsMoveBetweenServers(t *testing.T) {
	database := startNDB(t)
	dir, err := os.MkdirTemp("", "fndb2")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	second, err := stateserver.Start(t.Context(), absolute(t, "dist/flinkndb"), dir, database.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(); err != nil {
			t.Error(err)
		}
	})
	e := newEnvironmentOn(t, database.URL(), flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"state.backend.ndb.address": firstServer + ";" + second.Address(),
	}})
	l := ledger{keys: 300, records: 120_000, rate: 2_000}
	job := e.submit(e.upload(), l.run(2))
	e.awaitRunning(job)
	for _, server := range []*stateserver.Server{e.server, second} {
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		e.must(server.Kill())
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 3))
		e.must(server.Restart(e.ctx))
	}
	restarts, err := e.cluster.Restarts(e.ctx, job)
	e.must(err)
	if restarts != 0 {
		t.Errorf("the job restarted %d times", restarts)
	}
	e.awaitFinished(job)
	e.verify(l)
}
