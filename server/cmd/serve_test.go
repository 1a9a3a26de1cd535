package cmd

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/certs"
)

// run executes a command line and returns what it printed.
func run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
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

// freeAddress is a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
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
		{[]string{"--flatten-rate", "-1"}, []string{"--flatten-rate", "-1", "never"}},
		{[]string{"--flatten-delay", "-1s"}, []string{"--flatten-delay", "-1s", "above"}},
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
	address, socket := freeAddress(t), "unix://"+filepath.Join(t.TempDir(), "s")
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
	address := freeAddress(t)
	serve(t, "--http", "", "--listen", "tcp://"+address, "--tls-cert", at("server.pem"), "--tls-key", at("server.key"), "--tls-client-ca", at("ca.pem"))
	good := []string{"--address", address, "--tls-ca", at("ca.pem"), "--tls-cert", at("client.pem"), "--tls-key", at("client.key")}
	awaitStatus(t, good...)
	for name, args := range map[string][]string{
		"plain text":          {"--address", address},
		"no certificate":      {"--address", address, "--tls-ca", at("ca.pem")},
		"foreign certificate": {"--address", address, "--tls-ca", at("ca.pem"), "--tls-cert", at("stranger.pem"), "--tls-key", at("stranger.key")},
		"expired certificate": {"--address", address, "--tls-ca", at("ca.pem"), "--tls-cert", at("expired.pem"), "--tls-key", at("expired.key")},
		"foreign authority":   {"--address", address, "--tls-ca", at("foreign.pem"), "--tls-cert", at("client.pem"), "--tls-key", at("client.key")},
	} {
		if out, err := run(t.Context(), append([]string{"status", "--timeout", "2s"}, args...)...); err == nil {
			t.Errorf("%s was let in: %s", name, out)
		}
	}
	awaitStatus(t, good...)
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
	for _, args := range [][]string{{}, {"--token-file", filepath.Join(dir, "wrong")}} {
		out, err := run(t.Context(), append([]string{"status", "--address", socket}, args...)...)
		if err == nil || !strings.Contains(err.Error(), "token") {
			t.Errorf("%v: %s %v", args, out, err)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("the token is in the message: %v", err)
		}
	}
}
