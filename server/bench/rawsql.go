package bench

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/flinkndb/flinkndb/server/store"
)

// rawTarget measures SQL as one would write it by hand for this purpose: the same kind of table, the
// same bulk statements, one transaction for what the store does in one; no retries, no record of
// the commit, no long keys or values.
type rawTarget struct{ db *sql.DB }

// rawOpener is a store that can open the database beside its own connections.
type rawOpener interface {
	// OpenDB opens a pool of connections to one of the store's servers with the store's session settings.
	OpenDB(size int) *sql.DB
	// TableLike creates an empty table like the store's table of rows, replacing an older one.
	TableLike(ctx context.Context, name string) error
}

const rawTable = "bench_row"

func openRaw(ctx context.Context, s store.Store, concurrency int) (*rawTarget, error) {
	opener, ok := s.(rawOpener)
	if !ok {
		return nil, fmt.Errorf("raw SQL is not available for this store")
	}
	if err := opener.TableLike(ctx, rawTable); err != nil {
		return nil, err
	}
	return &rawTarget{opener.OpenDB(max(concurrency, 4))}, nil
}

func (t *rawTarget) close(ctx context.Context) {
	_, _ = t.db.ExecContext(ctx, "DROP TABLE IF EXISTS "+rawTable)
	_ = t.db.Close()
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func (t *rawTarget) get(ctx context.Context, keys []store.RowKey) (int, error) {
	return selectRows(ctx, t.db, keys)
}

// inTransaction runs fn between START TRANSACTION and COMMIT.
func (t *rawTarget) inTransaction(ctx context.Context, fn func(querier) error) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

func (t *rawTarget) put(ctx context.Context, rows []store.Row) error {
	return t.inTransaction(ctx, func(q querier) error { return replaceRows(ctx, q, rows) })
}

func (t *rawTarget) update(ctx context.Context, rows []store.Row) error {
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
	}
	return t.inTransaction(ctx, func(q querier) error {
		if _, err := selectRows(ctx, q, keys); err != nil {
			return err
		}
		return replaceRows(ctx, q, rows)
	})
}

func (t *rawTarget) scan(ctx context.Context, group uint16, after []byte, limit int) (int, []byte, error) {
	where := ""
	if after != nil {
		where = " AND k>" + literal(after)
	}
	rows, err := t.db.QueryContext(ctx, fmt.Sprintf("SELECT k,v FROM %s WHERE space=%d AND key_group=%d AND state=0%s ORDER BY k LIMIT %d",
		rawTable, uint64(benchSpace), group, where, limit))
	if err != nil {
		return 0, nil, err
	}
	defer rows.Close()
	var k, v, last []byte
	n := 0
	for rows.Next() {
		if err := rows.Scan(&k, &v); err != nil {
			return n, nil, err
		}
		last = k
		n++
	}
	if n < limit {
		last = nil
	}
	return n, last, rows.Err()
}

func (t *rawTarget) snapshot(ctx context.Context, rows []store.Row, record []byte, name string) error {
	if err := t.put(ctx, rows); err != nil {
		return err
	}
	key := store.RowKey{Space: benchSpace, Group: 65535, Key: []byte(name)}
	return t.inTransaction(ctx, func(q querier) error {
		locked, err := q.QueryContext(ctx, selectStatement([]store.RowKey{key})+" FOR UPDATE")
		if err != nil {
			return err
		}
		for locked.Next() { // reads the answer away
		}
		if err := locked.Close(); err != nil {
			return err
		}
		return replaceRows(ctx, q, []store.Row{{RowKey: key, Value: record}})
	})
}

func selectStatement(keys []store.RowKey) string {
	var b strings.Builder
	b.WriteString("SELECT space,key_group,state,k,v FROM " + rawTable + " WHERE (space,key_group,state,k) IN (")
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%d,%d,%d,", k.Space, k.Group, k.State)
		writeLiteral(&b, k.Key)
		b.WriteByte(')')
	}
	b.WriteByte(')')
	return b.String()
}

func selectRows(ctx context.Context, q querier, keys []store.RowKey) (int, error) {
	rows, err := q.QueryContext(ctx, selectStatement(keys))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	values := make(map[string][]byte, len(keys))
	var space uint64
	var group, state uint16
	var k sql.RawBytes
	for rows.Next() {
		var v []byte
		if err := rows.Scan(&space, &group, &state, &k, &v); err != nil {
			return 0, err
		}
		values[string(k)] = v // keys of the benchmark are unique without their group
	}
	return len(values), rows.Err()
}

func replaceRows(ctx context.Context, q querier, rows []store.Row) error {
	var b strings.Builder
	b.WriteString("REPLACE INTO " + rawTable + " (space,key_group,state,k,v) VALUES ")
	for i, r := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%d,%d,%d,", r.Space, r.Group, r.State)
		writeLiteral(&b, r.Key)
		b.WriteByte(',')
		writeLiteral(&b, r.Value)
		b.WriteByte(')')
	}
	_, err := q.ExecContext(ctx, b.String())
	return err
}

// writeLiteral quotes bytes as the store does.
func writeLiteral(b *strings.Builder, v []byte) {
	b.WriteByte('\'')
	for len(v) > 0 {
		i := bytes.IndexAny(v, "'\\\x00")
		if i < 0 {
			b.Write(v)
			break
		}
		b.Write(v[:i])
		b.WriteByte('\\')
		if v[i] == 0 {
			b.WriteByte('0')
		} else {
			b.WriteByte(v[i])
		}
		v = v[i+1:]
	}
	b.WriteByte('\'')
}

func literal(v []byte) string {
	var b strings.Builder
	writeLiteral(&b, v)
	return b.String()
}
