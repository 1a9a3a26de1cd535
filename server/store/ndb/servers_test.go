package ndb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/rs/zerolog"

	cluster "github.com/flinkndb/flinkndb/tests/ndb"
)

// startTimeout bounds the start of database servers in tests.
const startTimeout = 3 * time.Minute

// servers are the database servers that tests share; each is started when first needed.
type servers struct {
	ndb, redundant, mysql, mariadb shared
	cluster                        *cluster.Cluster // of redundant
}

// shared is a database server started once for all tests that use it.
type shared struct {
	once sync.Once
	url  func(database string) string
	err  error
	stop func() error
}

var shareds servers // set up and torn down by TestMain's process only

var databases atomic.Int64

func TestMain(m *testing.M) {
	code := m.Run()
	for _, s := range []*shared{&shareds.ndb, &shareds.redundant, &shareds.mysql, &shareds.mariadb} {
		if s.stop != nil {
			if err := s.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stopping a database server:", err)
				code = 1
			}
		}
	}
	os.Exit(code)
}

func (s *shared) start(t testing.TB, variable string, start func(ctx context.Context, dir string) (func(string) string, func() error, error)) func(string) string {
	t.Helper()
	cluster.Require(t, variable)
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		dir, err := os.MkdirTemp("", "flinkndb-test-")
		if err != nil {
			s.err = err
			return
		}
		var stop func() error
		s.url, stop, s.err = start(ctx, dir)
		s.stop = func() error {
			defer os.RemoveAll(dir)
			if stop == nil {
				return nil
			}
			return stop()
		}
	})
	cluster.SkipIfAbsent(t, s.err)
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.url
}

// ndbURL returns the URL of a fresh database on a small NDB cluster.
func ndbURL(t testing.TB) string {
	url := shareds.ndb.start(t, cluster.TestNDBVariable, func(ctx context.Context, dir string) (func(string) string, func() error, error) {
		c, err := cluster.Start(ctx, cluster.Options{Dir: dir, DataMemory: "1G"})
		if err != nil {
			return nil, nil, err
		}
		return func(db string) string { return c.URLOf(db) }, c.KillAll, nil
	})
	return url(freshDatabase())
}

// redundantCluster returns a cluster with two data nodes, two replicas and two MySQL servers, and the
// URL of a fresh database on it. A test that breaks something repairs it before it ends.
func redundantCluster(t testing.TB) (*cluster.Cluster, string) {
	url := shareds.redundant.start(t, cluster.TestNDBVariable, func(ctx context.Context, dir string) (func(string) string, func() error, error) {
		c, err := cluster.Start(ctx, cluster.Options{Dir: dir, DataNodes: 2, Replicas: 2, MySQLServers: 2, DataMemory: "256M"})
		if err != nil {
			return nil, nil, err
		}
		shareds.cluster = c
		return func(db string) string { return c.URLOf(db) }, c.KillAll, nil
	})
	if !shareds.cluster.Running() {
		t.Fatal("an earlier test left the cluster broken")
	}
	return shareds.cluster, url(freshDatabase())
}

func mysqlURL(t testing.TB) string {
	return plainURL(t, &shareds.mysql, cluster.StartMySQL)
}

func mariadbURL(t testing.TB) string {
	return plainURL(t, &shareds.mariadb, cluster.StartMariaDB)
}

func plainURL(t testing.TB, s *shared, start func(context.Context, string, ...string) (*cluster.Plain, error)) string {
	url := s.start(t, cluster.TestInnoDBVariable, func(ctx context.Context, dir string) (func(string) string, func() error, error) {
		p, err := start(ctx, dir, "--max-allowed-packet=16M")
		if err != nil {
			return nil, nil, err
		}
		return p.URL, p.Kill, nil
	})
	return url(freshDatabase())
}

func freshDatabase() string { return fmt.Sprintf("test%d", databases.Add(1)) }

// engines are the database servers that tests run on.
var engines = []struct {
	name string
	url  func(testing.TB) string
}{{"ndb", ndbURL}, {"mysql", mysqlURL}, {"mariadb", mariadbURL}}

// onEngines runs a test on every kind of database server, each time with a fresh store.
func onEngines(t *testing.T, test func(t *testing.T, s *Store)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { test(t, openTest(t, e.url(t))) })
	}
}

// openTest opens a store that is closed at the end of the test.
func openTest(t testing.TB, url string) *Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := Open(ctx, url, testLog(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dropDatabase(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dropDatabase removes a test's tables: a cluster takes some hundred only.
func dropDatabase(t testing.TB, s *Store) {
	db := sql.OpenDB(s.hosts.pick().connect) // the store may be closed
	defer db.Close()
	_, err := db.ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+s.cfg.database)
	var my *mysql.MySQLError
	if err != nil && !(errors.As(err, &my) && my.Number == erBadDB) { // another store of the test had it, too
		t.Logf("removing database %s: %v", s.cfg.database, err)
	}
}

func testLog(t testing.TB) zerolog.Logger {
	return zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
}

// withOption adds an option to a store URL.
func withOption(url, option string) string {
	if strings.Contains(url, "?") {
		return url + "&" + option
	}
	return url + "?" + option
}
