package ndb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// exec runs statements as the administrator of the store's first server.
func exec(t *testing.T, s *Store, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := s.hosts.all[0].db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func openError(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := Open(ctx, url, testLog(t), nil)
	if err == nil {
		_ = s.Close()
	}
	return err
}

func wantMessage(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v; must contain %q", err, text)
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			url := e.url(t)
			s := openTest(t, url)
			exec(t, s, "UPDATE schema_info SET version = 99")
			wantMessage(t, openError(t, url), "schema version 99", "newer")
		})
	}
}

func TestWrongEngineIsRefused(t *testing.T) {
	url := ndbURL(t)
	openTest(t, url)
	wantMessage(t, openError(t, strings.Replace(url, "engine=ndb", "engine=innodb", 1)), "of the engine NDBCLUSTER", "engine=ndb")
}

func TestServerWithoutNDBIsRefused(t *testing.T) {
	wantMessage(t, openError(t, strings.Replace(mariadbURL(t), "engine=innodb", "engine=ndb", 1)), "--ndbcluster")
	wantMessage(t, openError(t, strings.Replace(mysqlURL(t), "engine=innodb", "engine=ndb", 1)), "--ndbcluster")
}

// TestAccounts uses an account without rights, one with the documented rights on existing tables,
// and one with a wrong password.
func TestAccounts(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			url := e.url(t)
			admin := openTest(t, url)
			exec(t, admin, "DROP USER IF EXISTS app", "CREATE USER app IDENTIFIED BY 'right'")
			app := strings.Replace(url, "root@", "app@", 1)
			t.Setenv(passwordVariable, "wrong")
			wantMessage(t, openError(t, app), "Access denied", passwordVariable)
			t.Setenv(passwordVariable, "right")
			wantMessage(t, openError(t, app), "needs SELECT, INSERT, UPDATE, DELETE")
			exec(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+admin.cfg.database+".* TO app")
			s := openTest(t, app)
			put(t, s, row(1, 2, 3, "k", "v"))
			if v := getOne(t, s, row(1, 2, 3, "k", "").RowKey); string(v) != "v" {
				t.Errorf("value %q", v)
			}
			if err := s.DropSpace(t.Context(), 1); err != nil {
				t.Error(err)
			}
			// A right is missing that only some operations need.
			exec(t, admin, "REVOKE DELETE ON "+admin.cfg.database+".* FROM app")
			wantMessage(t, openError(t, app), "needs SELECT, INSERT, UPDATE, DELETE")
			exec(t, admin, "GRANT DELETE ON "+admin.cfg.database+".server_commit TO app")
			_, err := openTest(t, app).Update(t.Context(), func(tx store.Tx) error { return tx.Delete([]store.RowKey{{Space: 1}}) })
			wantMessage(t, err, "needs SELECT, INSERT, UPDATE, DELETE")
			if errors.Is(err, store.ErrUnavailable) {
				t.Errorf("a missing right is not a temporary failure: %v", err)
			}
		})
	}
}

// TestPrintedSchemaWorks runs the statements of Schema by hand.
func TestPrintedSchemaWorks(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			url := e.url(t)
			admin := openTest(t, url)
			byHand := freshDatabase() + "byhand"
			exec(t, admin, "CREATE DATABASE "+byHand)
			conn, err := admin.hosts.all[0].db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.ExecContext(t.Context(), "USE "+byHand+";"+Schema(admin.cfg.engine)); err != nil {
				t.Fatal(err)
			}
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // its database is not the pool's
			s := openTest(t, strings.Replace(url, "/"+admin.cfg.database+"?", "/"+byHand+"?", 1))
			put(t, s, row(1, 2, 3, "k", "v"))
		})
	}
}

// questions counts the statements that a server has received.
func questions(t testing.TB, db *sql.DB) int {
	t.Helper()
	var name string
	var n int
	if err := db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStatementsPerThousandRows fails when somebody brings a statement per row onto a hot path.
func TestStatementsPerThousandRows(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		const n = 1000
		rows := make([]store.Row, n)
		keys := make([]store.RowKey, n)
		for i := range rows {
			rows[i] = row(1, uint16(i%16), uint16(i%3), fmt.Sprintf("key%06d", i), strings.Repeat("v", 100))
			keys[i] = rows[i].RowKey
		}
		long := make([]store.Row, n)
		for i := range long {
			long[i] = row(2, uint16(i%16), 0, fmt.Sprintf("key%06d", i), strings.Repeat("v", 3000))
		}
		longKeys := make([]store.RowKey, n)
		for i := range long {
			longKeys[i] = long[i].RowKey
		}
		db := s.hosts.all[0].db
		update := func(fn func(tx store.Tx) error) func() error {
			return func() error { _, err := s.Update(t.Context(), fn); return err }
		}
		put(t, s, rows...) // states are known
		put(t, s, long...)
		checkRows(t, s, rows) // connections are open
		checkRows(t, s, long)
		for _, c := range []struct {
			name string
			most int
			run  func() error
		}{
			{"put", 5, update(func(tx store.Tx) error { return tx.Put(rows) })},
			{"get", 4, func() error { _, err := s.Get(t.Context(), keys); return err }},
			{"read, lock and write", 7, update(func(tx store.Tx) error {
				if _, err := tx.LockMeta("lane"); err != nil {
					return err
				}
				if _, err := tx.Get(keys); err != nil {
					return err
				}
				return errors.Join(tx.Put(rows), tx.PutMeta("lane", []byte("1")))
			})},
			{"scan", 4 * 16, func() error {
				for group := range uint16(16) {
					if _, err := s.Scan(t.Context(), store.Range{Space: 1, Group: group, State: 0}); err != nil {
						return err
					}
				}
				return nil
			}},
			// 3 MB of values: two statements for the rows, two for the chunks.
			{"put long values", 11, update(func(tx store.Tx) error { return tx.Put(long) })},
			{"get long values", 8, func() error { _, err := s.Get(t.Context(), longKeys); return err }},
			{"delete long values", 7, update(func(tx store.Tx) error { return tx.Delete(longKeys) })},
			{"delete", 5, update(func(tx store.Tx) error { return tx.Delete(keys) })},
		} {
			before := questions(t, db)
			if err := c.run(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			used := questions(t, db) - before - 1
			t.Logf("%s: %d statements for %d rows", c.name, used, n)
			if used > c.most {
				t.Errorf("%s: %d statements for %d rows, allowed are %d", c.name, used, n, c.most)
			}
		}
	})
}

// TestScansReadOnePartition: a scan must go to the one partition that holds the key group.
func TestScansReadOnePartition(t *testing.T) {
	s := openTest(t, ndbURL(t))
	put(t, s, row(1, 2, 3, "k", "v"))
	sc := &scanner{r: store.Range{Space: 1, Group: 2, State: 3, Prefix: []byte("k")}}
	var st statement
	st.WriteString("EXPLAIN FORMAT=TRADITIONAL SELECT k,more,v")
	sc.from(&st, bound{"k", true}, "l")
	st.number(10)
	err := s.withSession(t.Context(), s.hosts.all[0].db, func(c *session) error {
		return c.queryNamed(st.String(), func(columns map[string]driver.Value) error {
			partitions, _ := asBytes(columns["partitions"])
			if len(partitions) == 0 || strings.Contains(string(partitions), ",") || !strings.Contains(fmt.Sprintf("%s", columns["key"]), "PRIMARY") {
				t.Errorf("the scan reads partitions %s by key %s", partitions, columns["key"])
			}
			if extra := fmt.Sprintf("%s", columns["Extra"]); strings.Contains(extra, "filesort") {
				t.Errorf("the scan sorts: %s", extra)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
