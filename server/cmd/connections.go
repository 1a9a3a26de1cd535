package cmd

import (
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

const (
	// spareConnections are allowed beside those of sessions: for opening sessions, for the JobManager's
	// releases, and for administrators.
	spareConnections = 256
	// storeFiles is how many files the store may need, which connections must leave.
	storeFiles = 1024
	// refusalLog is the time between two lines that tell of refused connections.
	refusalLog = 10 * time.Second
)

// connections bounds how many clients are connected, on all endpoints together. One above the limit is
// closed at once: those that are there go on, and the server keeps files for its store.
type connections struct {
	limit   int64
	open    atomic.Int64
	refused prometheus.Counter
	log     zerolog.Logger

	mu     sync.Mutex
	silent time.Time // no line about refusals before
}

func newConnections(limit int, log zerolog.Logger, r prometheus.Registerer) *connections {
	c := &connections{limit: int64(limit), log: log, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "flinkndb_refused_connections_total", Help: "Connections closed at once because there were too many."})}
	r.MustRegister(c.refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flinkndb_connections", Help: "Connections of clients."}, func() float64 { return float64(c.open.Load()) }))
	return c
}

// connectionLimit is how many connections so many sessions need; an error when the process may not open so
// many files.
func connectionLimit(sessions int) (int, error) {
	limit := sessions + spareConnections
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return 0, err
	}
	if need := uint64(limit + storeFiles); files.Cur < need {
		return 0, usageErrorf("--max-sessions: %d sessions need %d open files, this process may open %d: raise the limit (ulimit -n, LimitNOFILE=) or allow fewer sessions",
			sessions, need, files.Cur)
	}
	return limit, nil
}

// bound returns a listener that keeps to the limit.
func (c *connections) bound(l net.Listener) net.Listener { return &boundListener{l, c} }

type boundListener struct {
	net.Listener
	connections *connections
}

// Accept implements net.Listener.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.connections.open.Add(1) <= l.connections.limit {
			return &countedConn{Conn: conn, connections: l.connections}, nil
		}
		l.connections.open.Add(-1)
		l.connections.refuse(conn)
	}
}

func (c *connections) refuse(conn net.Conn) {
	_ = conn.Close() // it was never used
	c.refused.Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.silent) {
		c.silent = now.Add(refusalLog)
		c.log.Warn().Int64("limit", c.limit).Str("from", conn.RemoteAddr().String()).
			Msg("too many connections: new ones are closed at once (--max-sessions)")
	}
}

// countedConn counts until it is closed.
type countedConn struct {
	net.Conn
	connections *connections
	once        sync.Once
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.once.Do(func() { c.connections.open.Add(-1) })
	return c.Conn.Close()
}
