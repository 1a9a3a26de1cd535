package ndb

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	dialTimeout = 5 * time.Second
	// ioTimeout ends a wait for a server that neither answers nor closes the connection.
	ioTimeout = 20 * time.Second
	// sessionTimeout is how long the MySQL server keeps the session, and with it the locks, of a
	// FlinkNDB server that died without closing the connection.
	sessionTimeout = 60 * time.Second
	// idleTimeout closes pooled connections before the server does.
	idleTimeout = 30 * time.Second
	// auxConnections serve the store's own purposes (probes, outcomes of lost commits), so that
	// these never wait for a connection that a transaction holds.
	auxConnections = 2
	// downFirst is how long a failed server is left alone when others work; each further failure
	// doubles it up to downMost.
	downFirst = time.Second
	downMost  = 30 * time.Second
)

// host is one MySQL server.
type host struct {
	address string
	connect driver.Connector
	db      *sql.DB // reads and single statements
	updates *sql.DB // transactions: a session of it always has one open, its first statement begins it
	aux     *sql.DB // see auxConnections
	// downUntil is a time by monotonic(); 0 = the server works. Before it the server is used only if
	// all are down, after it one caller tries.
	downUntil atomic.Int64
	failures  atomic.Int64 // without a success between
}

var processStart = time.Now()

// monotonic is a clock that does not jump when somebody sets the machine's.
func monotonic() time.Duration { return time.Since(processStart) }

// hosts spreads work over several MySQL servers and avoids those that fail.
type hosts struct {
	all  []*host
	next atomic.Uint64
}

func openHosts(cfg *config) (*hosts, error) {
	hs := &hosts{}
	for _, address := range cfg.addresses {
		tlsConf, err := cfg.tls.forAddress(address)
		if err != nil {
			return nil, err
		}
		connect, err := newConnector(cfg, address, cfg.database, tlsConf)
		if err != nil {
			return nil, err
		}
		updates, err := newConnector(cfg, address, cfg.database, tlsConf)
		if err != nil {
			return nil, err
		}
		updates.setup = append(updates.setup, "SET SESSION autocommit = 0")
		hs.all = append(hs.all, &host{address: address, connect: connect, db: openPool(connect, cfg.pool),
			updates: openPool(updates, cfg.pool), aux: openPool(connect, auxConnections)})
	}
	return hs, nil
}

func openPool(c driver.Connector, size int) *sql.DB {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(idleTimeout)
	return db
}

// pick returns the next server that works; if none does, the one whose turn to be tried comes first.
func (hs *hosts) pick() *host {
	now := monotonic()
	first := hs.next.Add(1)
	var best *host
	for i := range hs.all {
		h := hs.all[(first+uint64(i))%uint64(len(hs.all))]
		down := h.downUntil.Load()
		if down == 0 {
			return h
		}
		// Whoever moves the time forward is the one that tries.
		if down <= int64(now) && h.downUntil.CompareAndSwap(down, int64(now+h.downTime())) {
			return h
		}
		if best == nil || down < best.downUntil.Load() {
			best = h
		}
	}
	return best
}

func (h *host) downTime() time.Duration {
	return min(downFirst<<min(h.failures.Load(), 10), downMost)
}

// markDown takes a server out of use for a while.
func (h *host) markDown() {
	h.downUntil.Store(int64(monotonic() + h.downTime()))
	h.failures.Add(1)
}

// markUp says that a server has done its work.
func (h *host) markUp() {
	if h.downUntil.Load() != 0 {
		h.failures.Store(0)
		h.downUntil.Store(0)
	}
}

func (hs *hosts) close() error {
	var wg sync.WaitGroup
	errs := make([]error, len(hs.all))
	for i, h := range hs.all {
		wg.Go(func() { errs[i] = errors.Join(h.db.Close(), h.updates.Close(), h.aux.Close()) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// connector opens connections and prepares their sessions.
type connector struct {
	driver.Connector
	setup []string
}

func newConnector(cfg *config, address, database string, tlsConf *tls.Config) (*connector, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName, c.TLS = cfg.user, cfg.password, database, tlsConf
	c.Net, c.Addr = "tcp", address
	if strings.HasPrefix(address, "/") {
		c.Net = "unix"
	}
	c.Timeout, c.ReadTimeout, c.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	// Keys and values are bytes: no character set may touch them.
	c.Collation = "binary"
	// The store checks statement sizes against the server's limit itself.
	c.MaxAllowedPacket = 1 << 30
	// A transaction's mark and its COMMIT go in one round trip.
	c.MultiStatements = true
	// The driver's own log lines about broken connections say nothing that errors do not.
	c.Logger = &mysql.NopLogger{}
	inner, err := mysql.NewConnector(c)
	if err != nil {
		return nil, fmt.Errorf("MySQL server %s: %w", address, err)
	}
	return &connector{Connector: inner, setup: sessionSetup(cfg.engine)}, nil
}

// sessionSetup lists the statements that every new session begins with.
func sessionSetup(engine Engine) []string {
	setup := []string{
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
		// The literals of this package rely on backslash escapes; lossy conversions must fail. The
		// commented parts are for MySQL 8 and for MariaDB: long IN lists must stay look-ups by key.
		fmt.Sprintf("SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION wait_timeout = %d"+
			" /*!80000 , SESSION range_optimizer_max_mem_size = 0, SESSION information_schema_stats_expiry = 0 */"+
			" /*M!100300 , SESSION in_predicate_conversion_threshold = 0 */", int(sessionTimeout/time.Second)),
	}
	if engine == EngineNDB {
		// How many bytes of row operations mysqld sends to the data nodes at once.
		return append(setup, "SET SESSION ndb_batch_size = 8388608")
	}
	// A lost client must not block others for InnoDB's default of 50 s.
	return append(setup, "SET SESSION innodb_lock_wait_timeout = 10")
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, statement := range c.setup {
		if _, err := conn.(driver.ExecerContext).ExecContext(ctx, statement, nil); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("preparing a session (%s): %w", statement, err)
		}
	}
	return conn, nil
}
