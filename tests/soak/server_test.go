// Package soak overloads the real server: more is sent than it can store, by more clients than it allows,
// some of whom do not behave.
package soak

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flinkndb/flinkndb/tests/freeport"
	"github.com/flinkndb/flinkndb/tests/stateclient"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

// server is a running `flinkndb serve`, with its figures.
type server struct {
	*stateserver.Server
	t    *testing.T
	http string
}

// serverBinary is the server, built for these tests.
var serverBinary string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "flinkndb-soak")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	serverBinary = filepath.Join(dir, "flinkndb")
	build := exec.Command("go", "build", "-o", serverBinary, "github.com/flinkndb/flinkndb/server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

func startServer(t *testing.T, flags ...string) *server {
	t.Helper()
	address := freeport.Address(t)
	s, err := stateserver.Start(t.Context(), serverBinary, t.TempDir(), "", append(flags, "--http", address)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		log, err := os.ReadFile(s.LogFile())
		if err != nil || strings.Contains(string(log), "panic") || t.Failed() {
			t.Errorf("log of the server (%v):\n%s", err, log[max(0, len(log)-5000):])
		}
	})
	return &server{s, t, address}
}

// connect makes a connection of its own, as each session of the shim has.
func (s *server) connect() *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.Address(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(128<<20)))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *server) session(ctx context.Context, number int) *stateclient.Session {
	s.t.Helper()
	session, err := stateclient.Open(ctx, s.connect(), fmt.Sprintf("%032x", number))
	if err != nil {
		s.t.Fatal(err)
	}
	return session
}

// silent connects and says nothing.
func (s *server) silent() (net.Conn, error) {
	return net.Dial("unix", strings.TrimPrefix(s.Address(), "unix://"))
}

// metric asks for one of the server's figures.
func (s *server) metric(name string) float64 {
	s.t.Helper()
	response, err := http.Get("http://" + s.http + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // all was read
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return value
		}
	}
	s.t.Fatalf("no metric %s", name)
	return 0
}

// peakBytes is the most memory that the process has had at a time.
func (s *server) peakBytes() int64 {
	s.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return kib << 10
		}
	}
	s.t.Fatal("no VmHWM")
	return 0
}

// openFiles counts the files that the process has open.
func (s *server) openFiles() int {
	s.t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Pid()))
	if err != nil {
		s.t.Fatal(err)
	}
	return len(files)
}

// await waits for a condition.
func await(t *testing.T, what string, within time.Duration, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, within)
		}
	}
}
