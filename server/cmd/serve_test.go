package cmd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/flinkndb/flinkndb/tests/certs"
	"github.com/flinkndb/flinkndb/tests/freeport"
	"github.com/flinkndb/flinkndb/tests/stateclient"
)

// run executes a command line and returns what it printed.
func run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	shared := zerolog.SyncWriter(&out) // the log of a server comes from many goroutines
	root.SetOut(shared)
	root.SetErr(shared)
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

// serve runs `flinkndb serve` until the test ends.
func serve(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, append([]string{"serve", "--store", "memory:"}, args...)...)
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// awaitStatus runs `flinkndb status` until it succeeds.
func awaitStatus(t *testing.T, args ...string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		out, err := run(t.Context(), append([]string{"status", "--timeout", "2s"}, args...)...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s %v", out, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestUsageErrors demands that each wrong flag is named, with what was found.
func TestUsageErrors(t *testing.T) {
	short := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--listen", "somewhere"}, []string{"--listen", "somewhere", "unix:///"}},
		{[]string{"--listen", "unix://relative"}, []string{"--listen", "relative"}},
		{[]string{"--listen", "tcp://0.0.0.0:7480"}, []string{"--listen", "0.0.0.0:7480", "--tls-cert", "--insecure"}},
		{[]string{"--listen", "tcp://example.org:7480", "--token-file", short}, []string{"--listen", "--tls-cert"}},
		{[]string{"--token-file", short}, []string{"--token-file", "5 characters", "16"}},
		{[]string{"--tls-client-ca", short}, []string{"--tls-cert"}},
		{[]string{"--log-level", "loud"}, []string{"--log-level", "loud", "debug"}},
		{[]string{"--log-format", "xml"}, []string{"--log-format", "xml", "json"}},
		{[]string{"--max-value-bytes", "1"}, []string{"--max-value-bytes", "1024"}},
		{[]string{"--flatten-rate", "-1"}, []string{"--flatten-rate", "-1", "allowed are 0 to"}},
		{[]string{"--flatten-delay", "-1s"}, []string{"--flatten-delay", "-1s", "allowed are 0s to"}},
		{[]string{"--max-inflight-bytes", "1"}, []string{"--max-inflight-bytes", "found 1,", "67108864"}},
		{[]string{"--max-inflight-bytes", "134217728"}, []string{"--max-inflight-bytes", "268435456", "--max-value-bytes"}},
		{[]string{"--max-sessions", "0"}, []string{"--max-sessions", "found 0,"}},
		{[]string{"--max-sessions", "1000000"}, []string{"--max-sessions", "open files", "ulimit"}},
		{[]string{"--sweep-interval", "-1s"}, []string{"--sweep-interval", "-1s", "10ms"}},
		{[]string{"--store", "oracle:"}, []string{"--store", "oracle", "pebble:"}},
		{[]string{"--session-lease", "soon"}, []string{"session-lease", "soon"}},
		{[]string{"--no-such-flag"}, []string{"no-such-flag"}},
	} {
		args := append([]string{"serve", "--store", "memory:", "--http", "", "--listen", "unix://" + filepath.Join(t.TempDir(), "s")}, c.args...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := run(ctx, args...)
		cancel()
		var usage *usageError
		if !errors.As(err, &usage) {
			t.Errorf("%v: error %v is no usage error", c.args, err)
			continue
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%v: %q does not say %q", c.args, err, word)
			}
		}
	}
}

// TestEnvironment sets a flag by its variable.
func TestEnvironment(t *testing.T) {
	t.Setenv("FLINKNDB_LOG_LEVEL", "loud")
	if _, err := run(t.Context(), "serve", "--store", "memory:"); err == nil || !strings.Contains(err.Error(), "loud") {
		t.Errorf("error %v", err)
	}
}

// TestSocketOfOthers refuses to take a socket that somebody listens on, or a file that is none, and
// replaces one that was left behind.
func TestSocketOfOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), "serve", "--store", "memory:", "--http", "", "--listen", "unix://"+file); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file: %v", err)
	}
	socket := "unix://" + filepath.Join(dir, "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: strings.TrimPrefix(socket, "unix://"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	serve(t, "--http", "", "--listen", socket)
	awaitStatus(t, "--address", socket)
	if _, err := run(t.Context(), "serve", "--store", "memory:", "--http", "", "--listen", socket); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a socket in use: %v", err)
	}
}

// TestHTTP asks for health and metrics.
func TestHTTP(t *testing.T) {
	address, socket := freeport.Address(t), "unix://"+filepath.Join(t.TempDir(), "s")
	serve(t, "--http", address, "--listen", socket)
	awaitStatus(t, "--address", socket)
	for path, want := range map[string]string{"/healthz": "", "/readyz": "", "/metrics": "flinkndb_"} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(response.Body); err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK || !strings.Contains(body.String(), want) {
			t.Errorf("%s: %d %s", path, response.StatusCode, body.String())
		}
	}
}

// TestMutualTLS lets in clients with a certificate of the right authority, and no others.
func TestMutualTLS(t *testing.T) {
	dir := t.TempDir()
	ca, foreign := certs.NewAuthority(t, dir, "ca"), certs.NewAuthority(t, dir, "foreign")
	ca.Issue(t, "server", time.Hour)
	ca.Issue(t, "client", time.Hour)
	ca.Issue(t, "expired", -time.Hour)
	foreign.Issue(t, "stranger", time.Hour)
	at := func(name string) string { return filepath.Join(dir, name) }
	address := freeport.Address(t)
	serve(t, "--http", "", "--listen", "tcp://"+address, "--tls-cert", at("server.pem"), "--tls-key", at("server.key"), "--tls-client-ca", at("ca.pem"))
	good := []string{"--address", address, "--tls-ca", at("ca.pem"), "--tls-cert", at("client.pem"), "--tls-key", at("client.key")}
	awaitStatus(t, good...)
	witness := openSession(t, &clientFlags{address: address, tlsCA: at("ca.pem"), tlsCert: at("client.pem"), tlsKey: at("client.key")})
	for name, c := range map[string]struct {
		ca, cert string
		why      string
	}{
		"plain text":          {"", "", ""},
		"no certificate":      {"ca", "", "certificate required"},
		"foreign certificate": {"ca", "stranger", "unknown certificate authority"},
		"expired certificate": {"ca", "expired", "expired certificate"},
		"foreign authority":   {"foreign", "client", "unknown authority"},
	} {
		args := []string{"status", "--timeout", "2s", "--address", address}
		f := &clientFlags{}
		if c.ca != "" {
			f.tlsCA = at(c.ca + ".pem")
			args = append(args, "--tls-ca", f.tlsCA)
		}
		if c.cert != "" {
			f.tlsCert, f.tlsKey = at(c.cert+".pem"), at(c.cert+".key")
			args = append(args, "--tls-cert", f.tlsCert, "--tls-key", f.tlsKey)
		}
		if out, err := run(t.Context(), args...); err == nil {
			t.Errorf("%s was let in: %s", name, out)
		}
		if c.ca != "" {
			if err := shakeHands(t, address, f); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%s: %v does not say %q", name, err, c.why)
			}
		}
		goesOn(t, witness, name)
	}
}

// shakeHands returns why the server does not go on after the handshake. It writes nothing: a client that does
// may be cut off before it has read the reason.
func shakeHands(t *testing.T, address string, f *clientFlags) error {
	t.Helper()
	config, err := clientTLS(f.tlsCA, f.tlsCert, f.tlsKey)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"h2"}
	// A client of Go would not show what the server does not ask for.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if len(config.Certificates) == 0 {
			return &tls.Certificate{}, nil
		}
		return &config.Certificates[0], nil
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Read(make([]byte, 1)); err == nil {
		return nil
	}
	return err
}

// openSession attaches a session over a connection with an administrator's flags.
func openSession(t *testing.T, f *clientFlags) *stateclient.Session {
	t.Helper()
	options, err := f.dialOptions()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(dialTarget(f.address), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := stateclient.Open(t.Context(), conn, strings.Repeat("a", 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// goesOn demands that a session writes and reads.
func goesOn(t *testing.T, s *stateclient.Session, value string) {
	t.Helper()
	if _, err := s.Write(stateclient.Put("k", []byte(value))); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read("k"); err != nil || string(got) != value {
		t.Fatalf("after %s another session reads %q: %v", value, got, err)
	}
}

// TestTokenFile lets in clients with the token, and no others.
func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	for name, token := range map[string]string{"right": "0123456789abcdef-right\n", "wrong": "0123456789abcdef-wrong\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	socket := "unix://" + filepath.Join(dir, "s")
	serve(t, "--http", "", "--listen", socket, "--token-file", filepath.Join(dir, "right"))
	awaitStatus(t, "--address", socket, "--token-file", filepath.Join(dir, "right"))
	witness := openSession(t, &clientFlags{address: socket, tokenFile: filepath.Join(dir, "right")})
	for _, args := range [][]string{{}, {"--token-file", filepath.Join(dir, "wrong")}} {
		out, err := run(t.Context(), append([]string{"status", "--address", socket}, args...)...)
		if err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("%v: %s %v", args, out, err)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("the token is in the message: %v", err)
		}
		goesOn(t, witness, strings.Join(args, " "))
	}
}
