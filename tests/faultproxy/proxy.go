// Package faultproxy stands between a client and a server on Unix sockets, and cuts, stalls, slows down or loses what
// passes, as a network does.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards connections. Methods may be called concurrently.
type Proxy struct {
	listener net.Listener
	path     string
	delay    atomic.Int64 // nanoseconds that each piece of data waits
	loss     atomic.Pointer[Loss]
	working  sync.WaitGroup

	mu      sync.Mutex
	target  string
	open    map[net.Conn]struct{}
	links   map[*link]struct{}
	stalled chan struct{} // nil = data passes; closed when it passes again
	closed  bool
}

// link is a connection through the proxy.
type link struct {
	client, server net.Conn
	gone           atomic.Bool // what is sent disappears, and neither side learns when the other closes
}

// Loss is what a bad network does to pieces of data. A piece is what one side wrote at once, at most 64 KiB.
type Loss struct {
	// Repeated is the share of pieces, 0 to 1, that are lost and sent again by TCP: all behind them wait.
	Repeated float64
	// Pause is how long that takes at most; at least a quarter of it.
	Pause time.Duration
	// Broken is the share of pieces, 0 to 1, in the middle of which the connection breaks.
	Broken float64
}

// Listen makes a proxy with a socket at path. Connections are refused until Forward has been called.
func Listen(path string) (*Proxy, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: listener, path: path, open: make(map[net.Conn]struct{}), links: make(map[*link]struct{})}
	p.working.Go(p.accept)
	return p, nil
}

// Address is where clients connect to.
func (p *Proxy) Address() string { return "unix://" + p.path }

// Forward sets the socket of the server.
func (p *Proxy) Forward(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut closes all connections. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for connection := range p.open {
		_ = connection.Close() // whoever copies from it notices
	}
}

// Stall lets nothing pass, in either direction, until Resume.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Resume ends a Stall.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Delay lets each piece of data wait so long; 0 ends it.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Lose has pieces of data lost, in both directions; nil ends it.
func (p *Proxy) Lose(loss *Loss) { p.loss.Store(loss) }

// Vanish makes all open connections half-open, as when a machine loses its power or a firewall forgets them: what
// either side sends disappears, and neither is told. New connections work.
func (p *Proxy) Vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.gone.Store(true)
	}
}

// Close ends all connections and waits for what works on them.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Resume()
	err := p.listener.Close()
	p.Cut()
	p.working.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.working.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.enter(client) {
		return
	}
	defer p.leave(client)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server, err := (&net.Dialer{}).DialContext(ctx, "unix", target)
	if err != nil || !p.enter(server) {
		return // the client sees its connection closed, as without a proxy
	}
	defer p.leave(server)
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(l, server, client) })
	both.Go(func() { p.copy(l, client, server) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// enter counts a connection among those that Cut closes, unless the proxy is closed.
func (p *Proxy) enter(connection net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = connection.Close()
		return false
	}
	p.open[connection] = struct{}{}
	return true
}

func (p *Proxy) leave(connection net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, connection)
	_ = connection.Close()
}

// copy passes data on until one side ends, and then ends both.
func (p *Proxy) copy(l *link, to, from net.Conn) {
	defer func() {
		if !l.gone.Load() {
			_ = errors.Join(to.Close(), from.Close())
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.hold()
		if n > 0 && !l.gone.Load() && !p.pass(to, buffer[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// pass sends a piece on, as far as Lose allows; false ends the connection.
func (p *Proxy) pass(to net.Conn, piece []byte) bool {
	whole := true
	if loss := p.loss.Load(); loss != nil {
		if rand.Float64() < loss.Repeated {
			time.Sleep(loss.Pause/4 + rand.N(loss.Pause*3/4+1))
		}
		if rand.Float64() < loss.Broken {
			piece, whole = piece[:rand.N(len(piece))], false
		}
	}
	_, err := to.Write(piece)
	return err == nil && whole
}

// hold waits as long as Stall and Delay demand.
func (p *Proxy) hold() {
	if d := time.Duration(p.delay.Load()); d > 0 {
		time.Sleep(d)
	}
	p.mu.Lock()
	stalled := p.stalled
	p.mu.Unlock()
	if stalled != nil {
		<-stalled
	}
}
