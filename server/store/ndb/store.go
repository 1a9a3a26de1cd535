package ndb

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
)

const (
	// readParallel is how many connections one Get uses at most, and readShare how many keys make
	// another one worth while.
	readParallel = 4
	readShare    = 256
)

// Store implements store.Store on MySQL servers.
type Store struct {
	cfg     config
	log     zerolog.Logger
	metrics *metrics
	hosts   *hosts
	// maxBytes is how many bytes of literals go into one statement, maxOperations how many rows
	// into one transaction (0 = not known).
	maxBytes      int
	maxOperations int
	writer        uint64 // this run of this server, in table server_commit
	marks         marks
	longStates    longStates
	prober        *prober      // nil unless durability=disk
	analyzed      atomic.Int64 // when index statistics were looked at last: monotonic() and statisticsAge; 0 = never
	closed        atomic.Bool
	closing       chan struct{} // closed by Close
	closeOnce     sync.Once
	background    sync.WaitGroup
}

// Open connects to the MySQL servers of a store URL and creates or upgrades the tables. It waits
// for servers that do not answer, within ctx and the URL's retry-timeout. reg may be nil.
func Open(ctx context.Context, rawURL string, log zerolog.Logger, reg prometheus.Registerer) (*Store, error) {
	cfg, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	hs, err := openHosts(&cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, log: log.With().Str("store", "mysql").Logger(), metrics: m, hosts: hs,
		writer: rand.Uint64(), closing: make(chan struct{})}
	if err := s.prepare(ctx); err != nil {
		_ = hs.close()
		return nil, err
	}
	if cfg.durability == DurabilityDisk {
		s.prober = &prober{store: s, wake: make(chan struct{}, 1)}
		s.background.Go(s.prober.run)
	}
	return s, nil
}

// Name implements store.Store.
func (s *Store) Name() string { return s.cfg.name() }

// Close implements store.Store.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		s.closed.Store(true)
		close(s.closing)
		s.background.Wait()
		s.removeMarks()
		err = s.hosts.close()
	})
	return err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.RowKey) ([][]byte, error) {
	l, err := newLookup(keys)
	if err != nil {
		return nil, err
	}
	parts := max(1, min(readParallel, s.cfg.pool, len(keys)/readShare))
	if parts == 1 {
		return l.values, s.get(ctx, l)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() {
			if errs[p] = s.get(ctx, l.part(p*len(keys)/parts, (p+1)*len(keys)/parts)); errs[p] != nil {
				cancel()
			}
		})
	}
	wg.Wait()
	return l.values, firstCause(errs)
}

// part is the lookup of keys[from:to]; its values are those of l.
func (l *lookup) part(from, to int) *lookup {
	return &lookup{table: l.table, keys: l.keys[from:to], values: l.values[from:to],
		full: func(i int) []byte { return l.full(from + i) }}
}

func (s *Store) get(ctx context.Context, l *lookup) error {
	return s.withRetry(ctx, "get", func(ctx context.Context, h *host) error {
		clear(l.values)
		return s.withSession(ctx, h.db, func(c *session) error { return c.get(l) })
	})
}

// Scan implements store.Store.
func (s *Store) Scan(ctx context.Context, r store.Range) (page store.Page, err error) {
	err = s.withRetry(ctx, "scan", func(ctx context.Context, h *host) error {
		return s.withSnapshot(ctx, h, func(c *session) error {
			page, err = c.scan(r)
			return err
		})
	})
	return page, err
}

// Meta implements store.Store.
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) {
	if err := checkMeta(key, nil); err != nil {
		return nil, err
	}
	l := &lookup{table: &metaTable, keys: []sqlKey{metaKey(key)}, values: make([][]byte, 1)}
	err := s.get(ctx, l)
	return l.values[0], err
}

// ScanMeta implements store.Store.
func (s *Store) ScanMeta(ctx context.Context, prefix string) (all []store.Meta, err error) {
	err = s.withRetry(ctx, "scan_meta", func(ctx context.Context, h *host) error {
		return s.withSnapshot(ctx, h, func(c *session) error {
			all, err = c.scanMeta(prefix)
			return err
		})
	})
	return all, err
}

// withSnapshot runs several reads. With InnoDB they see one state of the database; NDB has no such
// thing.
func (s *Store) withSnapshot(ctx context.Context, h *host, fn func(*session) error) error {
	return s.withSession(ctx, h.db, func(c *session) error {
		if s.cfg.engine == EngineNDB {
			return fn(c)
		}
		if _, err := c.exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
			return err
		}
		if _, err := c.exec("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"); err != nil {
			return err
		}
		defer c.rollback()
		return fn(c)
	})
}
