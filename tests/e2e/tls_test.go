//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/certs"
	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/freeport"
)

// TestTLS takes a job whose TaskManagers and JobManager reach the server by TCP only, with certificates on both sides
// and a token, through native savepoints and a retained checkpoint, in which all that is about a snapshot happens
// outside of a session: it is opened by another backend, and released by the JobManager.
func TestTLS(t *testing.T) {
	e := newTLSEnvironment(t)
	l := ledger{keys: 200, records: 90_000, rate: 2_000}
	jar := e.upload()
	job := e.submit(jar, l.run(1))
	restart := func(parallelism int, path, claim, backend string) {
		t.Helper()
		t.Logf("parallelism %d from %s (%s, %s)", parallelism, path, claim, backend)
		run := l.run(parallelism)
		run.SavepointPath, run.ClaimMode, run.Config = path, claim, map[string]string{"state.backend.type": backend}
		job = e.submit(jar, run)
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
	}
	savepoint := func(stop bool) string {
		t.Helper()
		path, err := e.cluster.Savepoint(e.ctx, job, "NATIVE", stop)
		e.must(err)
		return path
	}
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
	beside := savepoint(false) // while the job goes on
	kept := savepoint(true)
	restart(2, kept, "NO_CLAIM", "org.flinkndb.NdbStateBackendFactory")
	restart(1, savepoint(true), "CLAIM", "org.flinkndb.NdbStateBackendFactory")
	restart(2, e.cancelWithCheckpoint(job), "CLAIM", "org.flinkndb.NdbStateBackendFactory")
	restart(1, savepoint(true), "CLAIM", "rocksdb") // opens ndb://…/refs/… as a canonical savepoint
	for _, path := range []string{beside, kept} {
		e.must(e.cluster.DisposeByCommand(e.ctx, path))
	}
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
	e.awaitEmptyStore() // what was claimed was released by the JobManager, what was not by the command
}

// newTLSEnvironment is newEnvironment with a server that wants a client's certificate and a token.
func newTLSEnvironment(t *testing.T) *environment {
	t.Helper()
	dir := t.TempDir()
	ca := certs.NewAuthority(t, dir, "ca")
	ca.Issue(t, "server", time.Hour)
	ca.Issue(t, "client", time.Hour)
	address := freeport.Address(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("token"), []byte("a token of some length"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FLINKNDB_TOKEN_FILE", at("token")) // for the server and the commands that ask it
	return newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"state.backend.ndb.address":     address,
		"state.backend.ndb.tls.enabled": "true",
		"state.backend.ndb.tls.ca":      at("ca.pem"),
		"state.backend.ndb.tls.cert":    at("client.pem"),
		"state.backend.ndb.tls.key":     at("client.key"),
		"state.backend.ndb.token-file":  at("token"),
	}}, "--listen", "tcp://"+address, "--tls-cert", at("server.pem"), "--tls-key", at("server.key"), "--tls-client-ca", at("ca.pem"))
}
