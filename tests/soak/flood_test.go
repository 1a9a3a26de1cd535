package soak

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

const (
	floodSessions = 32
	// floodLimit is how many connections the server takes then.
	floodLimit = floodSessions + 256
	flood      = 2000
)

// TestFlood connects thousands of times and says nothing. Those above the limit are refused at once, those
// below it after a while, sessions that were there go on, and the server keeps the files that its store needs.
func TestFlood(t *testing.T) {
	s := startServer(t, "--max-sessions", fmt.Sprint(floodSessions))
	witness := s.session(t.Context(), 1)
	before := s.openFiles()
	var mu sync.Mutex
	var conns []net.Conn
	var dialing sync.WaitGroup
	for range 8 {
		dialing.Go(func() {
			for range flood / 8 {
				conn, err := s.silent()
				if err != nil {
					continue // the kernel's queue is full: that is a refusal too
				}
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
			}
		})
	}
	for i := range 50 {
		check(t, witness, i)
		if open := s.openFiles(); open > before+floodLimit {
			t.Fatalf("%d files are open, %d before the flood", open, before)
		}
	}
	dialing.Wait()
	if refused := s.metric("flinkndb_refused_connections_total"); int(refused) < len(conns)-floodLimit {
		t.Errorf("%.0f of %d connections were refused", refused, len(conns))
	}
	deadline := time.Now().Add(40 * time.Second)
	for _, conn := range conns {
		if err := conn.SetReadDeadline(deadline); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, errTimeout(err)) {
			t.Fatalf("a silent connection is still open: %v", err)
		}
		_ = conn.Close() // the server has closed it
	}
	check(t, witness, flood)
	check(t, s.session(t.Context(), 2), 0) // there is room again
	await(t, "files are closed", 20*time.Second, func() bool { return s.openFiles() < before+10 })
}

// errTimeout returns the error if it is a timeout.
func errTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return nil
}
