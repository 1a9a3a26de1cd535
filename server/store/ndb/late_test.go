package ndb

import (
	"bytes"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// lateLink is a network between store and database server that breaks at a COMMIT, and brings it to the server
// nevertheless, a moment later.
type lateLink struct {
	net.Listener
	server string
	delay  time.Duration
	armed  atomic.Bool
	late   chan []byte // what the server answered to the late COMMIT
}

// startLateLink puts a link in front of the server of a store URL, and returns the URL through it.
func startLateLink(t *testing.T, storeURL string, delay time.Duration) (*lateLink, string) {
	u, err := url.Parse(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lateLink{Listener: listener, server: u.Host, delay: delay, late: make(chan []byte, 1)}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go l.carry(client)
		}
	}()
	u.Host = listener.Addr().String()
	return l, u.String()
}

func (l *lateLink) carry(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.server)
	if err != nil {
		return
	}
	defer server.Close()
	var sentLate atomic.Bool
	answered := make(chan []byte, 1) // what came after that
	go func() {
		defer close(answered)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				_ = client.Close()
				return
			}
			if sentLate.Load() {
				answered <- bytes.Clone(buf[:n])
				return
			}
			_, _ = client.Write(buf[:n])
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		isLate := bytes.Contains(buf[:n], []byte("; COMMIT")) && l.armed.CompareAndSwap(true, false)
		if isLate {
			_ = client.Close()
			time.Sleep(l.delay)
			sentLate.Store(true)
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if isLate {
			l.late <- <-answered
			return
		}
	}
}

// TestCommitThatArrivesLate breaks the connection at a COMMIT that reaches the server after all, when the store has
// looked for the transaction in vain: it must not happen twice.
func TestCommitThatArrivesLate(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			link, through := startLateLink(t, e.url(t), 500*time.Millisecond)
			s := openTest(t, through)
			for n := uint64(1); n <= 5; n++ {
				link.armed.Store(n%2 == 1) // with a mark that is the first of its slot, and with later ones
				mustUpdate(t, s, func(tx store.Tx) error { return increment(tx, 0) })
				if n%2 == 1 {
					t.Logf("answer to the late COMMIT: %.80q", <-link.late)
				}
				checkCounter(t, s, 0, n)
			}
		})
	}
}
