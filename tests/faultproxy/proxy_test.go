package faultproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// echo is a server that sends back what it gets.
func echo(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(connection, connection) }()
		}
	}()
}

func through(t *testing.T) (*Proxy, net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "fp") // Unix sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	echo(t, filepath.Join(dir, "e"))
	proxy, err := Listen(filepath.Join(dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	proxy.Forward(filepath.Join(dir, "e"))
	connection, err := net.Dial("unix", filepath.Join(dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	exchange(t, connection)
	return proxy, connection
}

func exchange(t *testing.T, connection net.Conn) {
	t.Helper()
	if _, err := connection.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(connection, answer); err != nil || string(answer) != "word" {
		t.Fatalf("answer %q, %v", answer, err)
	}
}

func TestCutClosesWhatIsOpen(t *testing.T) {
	proxy, connection := through(t)
	proxy.Cut()
	if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("read from a cut connection: %v", err)
	}
}

func TestStallHoldsDataBack(t *testing.T) {
	proxy, connection := through(t)
	proxy.Stall()
	if _, err := connection.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	if err := connection.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes passed, %v", n, err)
	}
	proxy.Resume()
	if err := connection.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(connection, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
}

func TestDelaySlowsDown(t *testing.T) {
	proxy, connection := through(t)
	proxy.Delay(30 * time.Millisecond)
	begin := time.Now()
	exchange(t, connection)
	if took := time.Since(begin); took < 60*time.Millisecond {
		t.Fatalf("there and back took %v", took)
	}
}

func TestVanishTellsNobody(t *testing.T) {
	proxy, connection := through(t)
	proxy.Vanish()
	if _, err := connection.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	if err := connection.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes passed, %v", n, err)
	}
	fresh, err := net.Dial("unix", strings.TrimPrefix(proxy.Address(), "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fresh.Close() }()
	exchange(t, fresh)
	proxy.Cut()
	if err := connection.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("read from a cut connection: %v", err)
	}
}

func TestLossBreaksWithinAPiece(t *testing.T) {
	proxy, connection := through(t)
	proxy.Lose(&Loss{Broken: 1})
	piece := make([]byte, 1<<10)
	if _, err := connection.Write(piece); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(connection); err == nil && len(got) == len(piece) {
		t.Fatal("all passed")
	}
}

func TestLossDelaysSomePieces(t *testing.T) {
	proxy, connection := through(t)
	proxy.Lose(&Loss{Repeated: 1, Pause: 80 * time.Millisecond})
	begin := time.Now()
	exchange(t, connection)
	if took := time.Since(begin); took < 40*time.Millisecond {
		t.Fatalf("there and back took %v", took)
	}
	proxy.Lose(nil)
	exchange(t, connection)
}
