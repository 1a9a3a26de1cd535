// Package storetest is the suite that every store.Store has to pass.
package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/flinkndb/flinkndb/server/store"
)

// Run runs the suite; open returns an empty store each time, which the suite closes.
func Run(t *testing.T, open func(t *testing.T) store.Store, options ...Option) {
	t.Run("Model", func(t *testing.T) { testModel(t, open(t)) })
	t.Run("Sizes", func(t *testing.T) { testSizes(t, open(t)) })
	t.Run("Rollback", func(t *testing.T) { testRollback(t, open(t)) })
	t.Run("Locks", func(t *testing.T) { testLocks(t, open(t)) })
	t.Run("DropSpace", func(t *testing.T) { testDropSpace(t, open(t)) })
	t.Run("Closed", func(t *testing.T) { testClosed(t, open(t)) })
	t.Run("Cancelled", func(t *testing.T) { testCancelled(t, open(t)) })
	runExamples(t, open, options)
}

func closeStore(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// update runs a transaction and waits until it is durable.
func update(s store.Store, fn func(store.Tx) error) error {
	commit, err := s.Update(context.Background(), fn)
	if err != nil {
		return err
	}
	return commit.Wait(context.Background())
}

// model is what a store should hold.
type model struct {
	rows  map[string]store.Row
	metas map[string]string
}

func name(k store.RowKey) string {
	raw := binary.BigEndian.AppendUint64(nil, k.Space)
	raw = binary.BigEndian.AppendUint16(raw, k.Group)
	raw = binary.BigEndian.AppendUint16(raw, k.State)
	return string(append(raw, k.Key...))
}

func (m *model) scan(r store.Range) []store.Row {
	var rows []store.Row
	for _, row := range m.rows {
		if row.Space == r.Space && row.Group == r.Group && row.State == r.State && bytes.HasPrefix(row.Key, r.Prefix) &&
			(r.After == nil || bytes.Compare(row.Key, r.After) > 0) {
			rows = append(rows, row)
		}
	}
	sort.Slice(rows, func(i, j int) bool { return bytes.Compare(rows[i].Key, rows[j].Key) < 0 })
	return rows
}

func drawKey(t *rapid.T) []byte {
	return []byte(rapid.SampledFrom([]string{"", "a", "ab", "b", "\x00", "\x00\x00", "\xff", "\xff\xff", "\xff\xffz"}).Draw(t, "key"))
}

func drawRowKey(t *rapid.T) store.RowKey {
	return store.RowKey{
		Space: rapid.SampledFrom([]uint64{1, 2, 1 << 40}).Draw(t, "space"),
		Group: rapid.SampledFrom([]uint16{0, 1, 32767}).Draw(t, "group"),
		State: rapid.SampledFrom([]uint16{0, 255, 32766}).Draw(t, "state"), Key: drawKey(t),
	}
}

// testModel compares random transactions and reads with plain maps.
func testModel(t *testing.T, s store.Store) {
	defer closeStore(t, s)
	ctx := context.Background()
	m := &model{rows: map[string]store.Row{}, metas: map[string]string{}}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "operations")
		if err := update(s, func(tx store.Tx) error {
			for range n {
				if err := m.operation(t, tx); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		m.compare(ctx, t, s)
	})
}

// operation changes store and model alike, or reads within the transaction.
func (m *model) operation(t *rapid.T, tx store.Tx) error {
	switch rapid.IntRange(0, 5).Draw(t, "operation") {
	case 0, 1:
		row := store.Row{RowKey: drawRowKey(t), Value: []byte(rapid.StringN(0, 5, -1).Draw(t, "value"))}
		m.rows[name(row.RowKey)] = row
		return tx.Put([]store.Row{row})
	case 2:
		key := drawRowKey(t)
		delete(m.rows, name(key))
		return tx.Delete([]store.RowKey{key})
	case 3:
		key := "meta/" + rapid.StringMatching("[ab]{0,2}").Draw(t, "meta")
		if rapid.Bool().Draw(t, "delete") {
			delete(m.metas, key)
			return tx.DeleteMeta(key)
		}
		m.metas[key] = rapid.StringN(0, 5, -1).Draw(t, "meta value")
		return tx.PutMeta(key, []byte(m.metas[key]))
	case 4:
		key := drawRowKey(t)
		values, err := tx.Get([]store.RowKey{key})
		if err != nil {
			return err
		}
		return m.sameValue(key, values[0])
	default:
		key := drawRowKey(t)
		page, err := tx.Scan(store.Range{Space: key.Space, Group: key.Group, State: key.State, Prefix: key.Key})
		if err != nil {
			return err
		}
		return sameRows(page.Rows, m.scan(store.Range{Space: key.Space, Group: key.Group, State: key.State, Prefix: key.Key}))
	}
}

func (m *model) sameValue(key store.RowKey, value []byte) error {
	row, known := m.rows[name(key)]
	if known != (value != nil) || !bytes.Equal(row.Value, value) {
		return fmt.Errorf("row %v: found %q, expected %q (%v)", key, value, row.Value, known)
	}
	return nil
}

func sameRows(found, want []store.Row) error {
	if len(found) != len(want) {
		return fmt.Errorf("found %d rows, expected %d", len(found), len(want))
	}
	for i := range found {
		if name(found[i].RowKey) != name(want[i].RowKey) || !bytes.Equal(found[i].Value, want[i].Value) {
			return fmt.Errorf("row %d: found %v, expected %v", i, found[i], want[i])
		}
	}
	return nil
}

func (m *model) compare(ctx context.Context, t *rapid.T, s store.Store) {
	key := drawRowKey(t)
	values, err := s.Get(ctx, []store.RowKey{key, drawRowKey(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.sameValue(key, values[0]); err != nil {
		t.Fatal(err)
	}
	r := store.Range{Space: key.Space, Group: key.Group, State: key.State, Prefix: drawKey(t), MaxRows: rapid.IntRange(1, 3).Draw(t, "page")}
	if rapid.Bool().Draw(t, "after") {
		r.After = drawKey(t)
	}
	want := m.scan(r)
	var found []store.Row
	for {
		page, err := s.Scan(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Rows) > r.MaxRows {
			t.Fatalf("a page of %d rows, at most %d were asked for", len(page.Rows), r.MaxRows)
		}
		found = append(found, page.Rows...)
		if page.Done {
			break
		}
		r.After = page.Rows[len(page.Rows)-1].Key
	}
	if err := sameRows(found, want); err != nil {
		t.Fatal(err)
	}
	metas, err := s.ScanMeta(ctx, "meta/")
	if err != nil {
		t.Fatal(err)
	}
	if len(metas) != len(m.metas) {
		t.Fatalf("found %d meta records, expected %d", len(metas), len(m.metas))
	}
	for i, meta := range metas {
		if m.metas[meta.Key] != string(meta.Value) || i > 0 && metas[i-1].Key >= meta.Key {
			t.Fatalf("meta record %d: %v", i, meta)
		}
	}
}

// testSizes writes keys and values at the edges of what NDB rows hold, and large ones.
func testSizes(t *testing.T, s store.Store) {
	defer closeStore(t, s)
	limits := s.Limits()
	var rows []store.Row
	for _, keyBytes := range []int{0, 1, 255, 256, 3071, 3072, 3073} {
		for _, valueBytes := range []int{0, 1, 13_999, 14_000, 29_999, 30_000, 30_001, 1 << 20} {
			if keyBytes <= limits.MaxKeyBytes && valueBytes <= limits.MaxValueBytes {
				key := bytes.Repeat([]byte{byte(valueBytes), 0xff}, keyBytes)[:keyBytes]
				rows = append(rows, store.Row{RowKey: store.RowKey{Space: 1, State: uint16(len(rows)), Key: key}, Value: bytes.Repeat([]byte("v"), valueBytes)})
			}
		}
	}
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
		if err := update(s, func(tx store.Tx) error { return tx.Put(rows[i : i+1]) }); err != nil {
			t.Fatalf("key of %d, value of %d bytes: %v", len(rows[i].Key), len(rows[i].Value), err)
		}
	}
	values, err := s.Get(context.Background(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if values[i] == nil || !bytes.Equal(values[i], rows[i].Value) {
			t.Errorf("key of %d bytes: %d bytes written, %d read", len(rows[i].Key), len(rows[i].Value), len(values[i]))
		}
	}
}

func testRollback(t *testing.T, s store.Store) {
	defer closeStore(t, s)
	failed := errors.New("failed on purpose")
	key := store.RowKey{Space: 1, Key: []byte("k")}
	err := update(s, func(tx store.Tx) error {
		if err := tx.Put([]store.Row{{RowKey: key, Value: []byte("v")}}); err != nil {
			return err
		}
		if err := tx.PutMeta("m", []byte("v")); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Fatalf("the error of the function is lost: %v", err)
	}
	values, err := s.Get(context.Background(), []store.RowKey{key})
	if err != nil {
		t.Fatal(err)
	}
	meta, err := s.Meta(context.Background(), "m")
	if err != nil {
		t.Fatal(err)
	}
	if values[0] != nil || meta != nil {
		t.Fatalf("a failed transaction left %q and %q", values[0], meta)
	}
}

// testLocks has transactions count under a lock: none may be lost.
func testLocks(t *testing.T, s store.Store) {
	defer closeStore(t, s)
	const workers, times = 8, 25
	var group sync.WaitGroup
	errs := make(chan error, workers)
	for range workers {
		group.Go(func() {
			for range times {
				err := update(s, func(tx store.Tx) error {
					raw, err := tx.LockMeta("counter")
					if err != nil {
						return err
					}
					var n uint64
					if raw != nil {
						n = binary.BigEndian.Uint64(raw)
					}
					return tx.PutMeta("counter", binary.BigEndian.AppendUint64(nil, n+1))
				})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	raw, err := s.Meta(context.Background(), "counter")
	if err != nil {
		t.Fatal(err)
	}
	if n := binary.BigEndian.Uint64(raw); n != workers*times {
		t.Fatalf("counted to %d, expected %d", n, workers*times)
	}
}

func testDropSpace(t *testing.T, s store.Store) {
	defer closeStore(t, s)
	ctx := context.Background()
	var rows []store.Row
	for i := range 3000 {
		rows = append(rows, store.Row{
			RowKey: store.RowKey{Space: uint64(1 + i%2), Group: uint16(i % 7), State: uint16(i % 3), Key: fmt.Append(nil, i)},
			Value:  []byte(strings.Repeat("x", i%50)),
		})
	}
	if err := update(s, func(tx store.Tx) error { return tx.Put(rows) }); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second time there is nothing to do
		if err := s.DropSpace(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
	}
	values, err := s.Get(ctx, keys)
	if err != nil {
		t.Fatal(err)
	}
	for i := range values {
		if (values[i] != nil) != (rows[i].Space == 2) {
			t.Fatalf("row %v: %v", rows[i].RowKey, values[i])
		}
	}
}

func testClosed(t *testing.T, s store.Store) {
	closeStore(t, s)
	if _, err := s.Get(context.Background(), []store.RowKey{{Space: 1}}); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("Get of a closed store: %v", err)
	}
	if _, err := s.Update(context.Background(), func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("Update of a closed store: %v", err)
	}
}

func testCancelled(t *testing.T, s store.Store) {
	defer closeStore(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Get(ctx, []store.RowKey{{Space: 1}}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Get with a cancelled context: %v", err)
	}
	if _, err := s.Update(ctx, func(tx store.Tx) error { return tx.PutMeta("m", nil) }); !errors.Is(err, context.Canceled) {
		t.Fatalf("Update with a cancelled context: %v", err)
	}
}
