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

// TestTLS runs a job whose TaskManagers and JobManager reach the server by TCP only, with certificates on both
// sides and a token, and demands that the JobManager could release what it discarded.
func TestTLS(t *testing.T) {
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
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"state.backend.ndb.address":     address,
		"state.backend.ndb.tls.enabled": "true",
		"state.backend.ndb.tls.ca":      at("ca.pem"),
		"state.backend.ndb.tls.cert":    at("client.pem"),
		"state.backend.ndb.tls.key":     at("client.key"),
		"state.backend.ndb.token-file":  at("token"),
	}}, "--listen", "tcp://"+address, "--tls-cert", at("server.pem"), "--tls-key", at("server.key"), "--tls-client-ca", at("ca.pem"))
	l := ledger{keys: 200, records: 30_000, rate: 2_000}
	job := e.submit(e.upload(), l.run(2))
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
	e.awaitEmptyStore() // the JobManager could release its snapshots
}
