// Package faultproxy stands between a client and a server on Unix sockets, and cuts, stalls or slows down what
// passes, as a network does.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
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
	working  sync.WaitGroup

	mu      sync.Mutex
	target  string
	open    map[net.Conn]struct{}
	stalled chan struct{} // nil = data passes; closed when it passes again
	closed  bool
}

// Listen makes a proxy with a socket at path. Connections are refused until Forward has been called.
func Listen(path string) (*Proxy, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: listener, path: path, open: make(map[net.Conn]struct{})}
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
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, client) })
	both.Go(func() { p.copy(client, server) })
	both.Wait()
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
func (p *Proxy) copy(to, from net.Conn) {
	defer func() { _ = errors.Join(to.Close(), from.Close()) }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.hold()
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
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
