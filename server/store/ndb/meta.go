package ndb

import (
	"database/sql/driver"
	"fmt"

	"github.com/flinkndb/flinkndb/server/store"
)

// LockMeta implements store.Tx. The lock is the row's; for a name without a record a placeholder
// row is inserted and removed again before the commit, so that it never becomes visible.
func (t *tx) LockMeta(key string) ([]byte, error) {
	if err := t.ready(); err != nil {
		return nil, err
	}
	if err := checkMeta(key, nil); err != nil {
		return nil, err
	}
	if t.placeholders[key] {
		return nil, nil
	}
	value, err := t.readMeta(key, true)
	if err != nil {
		return nil, t.fail(err)
	}
	if value != nil {
		return value, nil
	}
	var st statement
	st.WriteString("INSERT INTO meta (name,v) VALUES (")
	st.bytes([]byte(key))
	st.WriteString(",'')")
	// If another transaction has inserted the name since, this fails and the transaction is repeated.
	if _, err := t.c.exec(st.String()); err != nil {
		return nil, t.fail(err)
	}
	t.c.metrics.statement("lock_meta", 1)
	t.placeholders[key] = true
	return nil, nil
}

// removePlaceholders removes the rows that LockMeta made. The locks stay until the commit.
func (t *tx) removePlaceholders() error {
	if len(t.placeholders) == 0 {
		return nil
	}
	keys := make([]sqlKey, 0, len(t.placeholders))
	for name := range t.placeholders {
		keys = append(keys, metaKey(name))
	}
	return t.c.remove(&metaTable, keys)
}

// Meta implements store.Tx.
func (t *tx) Meta(key string) ([]byte, error) {
	if err := t.ready(); err != nil {
		return nil, err
	}
	if err := checkMeta(key, nil); err != nil {
		return nil, err
	}
	if t.placeholders[key] {
		return nil, nil
	}
	value, err := t.readMeta(key, false)
	if err != nil {
		return nil, t.fail(err)
	}
	return value, nil
}

func (t *tx) readMeta(key string, lock bool) ([]byte, error) {
	l := &lookup{table: &metaTable, keys: []sqlKey{metaKey(key)}, values: make([][]byte, 1), lock: lock,
		onLong: func(_ int, a appendix) { t.meta.long[metaKey(key)] = a }}
	if err := t.c.get(l); err != nil {
		return nil, err
	}
	t.meta.read = append(t.meta.read, l.keys)
	return l.values[0], nil
}

// ScanMeta implements store.Tx.
func (t *tx) ScanMeta(prefix string) ([]store.Meta, error) {
	if err := t.ready(); err != nil {
		return nil, err
	}
	all, err := t.c.scanMeta(prefix)
	if err != nil {
		return nil, t.fail(err)
	}
	n := 0
	for _, m := range all {
		if !t.placeholders[m.Key] {
			all[n] = m
			n++
		}
	}
	return all[:n], nil
}

// PutMeta implements store.Tx.
func (t *tx) PutMeta(key string, value []byte) error {
	if err := t.ready(); err != nil {
		return err
	}
	if err := checkMeta(key, value); err != nil {
		return err
	}
	if value == nil {
		value = []byte{}
	}
	changes := []change{{key: metaKey(key), value: value}}
	if err := t.countWrites(changes); err != nil {
		return err
	}
	t.wrote = true
	if err := t.write(&metaTable, &t.meta, changes); err != nil {
		return t.fail(err)
	}
	delete(t.placeholders, key)
	return nil
}

// DeleteMeta implements store.Tx. A lock on the name stays until the end of the transaction.
func (t *tx) DeleteMeta(key string) error {
	if err := t.ready(); err != nil {
		return err
	}
	if err := checkMeta(key, nil); err != nil {
		return err
	}
	if t.placeholders[key] {
		return nil
	}
	t.wrote = true
	keys := []sqlKey{metaKey(key)}
	if err := t.removeOld(&metaTable, &t.meta, keys); err != nil {
		return t.fail(err)
	}
	return t.fail(t.c.remove(&metaTable, keys))
}

// scanMeta reads all meta records whose names start with prefix.
func (c *session) scanMeta(prefix string) ([]store.Meta, error) {
	var all []store.Meta
	var long []longRow
	low, inclusive := prefix, true
	for {
		some, more, err := c.scanMetaPart(low, inclusive, prefix)
		if err != nil {
			return nil, err
		}
		for _, row := range more {
			row.index += len(all)
			long = append(long, row)
		}
		all = append(all, some...)
		if len(some) < maxStatementRows {
			break
		}
		low, inclusive = some[len(some)-1].Key, false
	}
	if len(long) == 0 {
		return all, nil
	}
	payloads, err := c.payloads(long, func(longRow) sqlKey { return sqlKey{} })
	if err != nil {
		return nil, err
	}
	for i, row := range long {
		all[row.index].Value = payloads[i]
	}
	return all, nil
}

// scanMetaPart reads up to maxStatementRows records in the order of their names, and says which of
// them have chunks.
func (c *session) scanMetaPart(low string, inclusive bool, prefix string) (some []store.Meta, long []longRow, err error) {
	var st statement
	st.WriteString("SELECT name,more,v FROM meta WHERE name>")
	if inclusive {
		st.WriteByte('=')
	}
	st.bytes([]byte(low))
	if high := successor([]byte(prefix)); high != "" {
		st.WriteString(" AND name<")
		st.bytes([]byte(high))
	}
	st.WriteString(" ORDER BY name LIMIT ")
	st.number(maxStatementRows)
	err = c.query(st.String(), func(columns []driver.Value) error {
		name, err := asBytes(columns[0])
		if err != nil {
			return fmt.Errorf("name of a meta record: %w", err)
		}
		record := store.Meta{Key: string(name)}
		if record.Key < low || record.Key == low && !inclusive {
			return fmt.Errorf("%s: the server returned it out of order", metaKey(record.Key))
		}
		low, inclusive = record.Key, false
		a, v, err := readValue(columns[1:])
		if err == nil && a != nil {
			err = a.fits(metaKey(record.Key))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", metaKey(record.Key), err)
		}
		if a == nil {
			record.Value = clone(v)
		} else {
			long = append(long, longRow{index: len(some), appendix: *a, head: clone(v)})
		}
		some = append(some, record)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	c.metrics.statement("scan_meta", len(some))
	return some, long, nil
}
