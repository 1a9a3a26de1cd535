package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

// Option changes what the suite expects.
type Option func(*suite)

// WithReopen adds a test that closes the store and opens it again on the same data.
func WithReopen(reopen func(t *testing.T, s store.Store) store.Store) Option {
	return func(su *suite) { su.reopen = reopen }
}

// WithReadCommitted is for stores whose pages are not snapshots: each row is from one moment, but
// the rows of a page may be from different ones.
func WithReadCommitted() Option { return func(su *suite) { su.readCommitted = true } }

type suite struct {
	reopen        func(t *testing.T, s store.Store) store.Store
	readCommitted bool
}

// runExamples runs the tests that are written out, beside the random ones.
func runExamples(t *testing.T, open func(t *testing.T) store.Store, options []Option) {
	su := &suite{}
	for _, o := range options {
		o(su)
	}
	tests := []struct {
		name string
		run  func(t *testing.T, s store.Store)
	}{
		{"Rows", testRows},
		{"NeighboursStayApart", testNeighbours},
		{"EverySize", testEverySize},
		{"HugeValue", testHugeValue},
		{"TooLarge", testTooLarge},
		{"ScanRanges", testScanRanges},
		{"ScanPages", testScanPages},
		{"LongKeysInOrder", testLongKeys},
		{"TransactionSeesItsWrites", testOwnWrites},
		{"FailedTransaction", testFailedTransaction},
		{"Meta", testMeta},
		{"LockMeta", testLockMeta},
		{"LockedRows", testLockedRows},
		{"ReadersDuringWrites", su.testReaders},
		{"DropManyRows", testDropManyRows},
		{"LockWait", testLockWait},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			defer closeStore(t, s)
			test.run(t, s)
		})
	}
	if su.reopen != nil {
		t.Run("Reopen", func(t *testing.T) { su.testReopen(t, open(t)) })
	}
}

// mustUpdate runs a transaction that must succeed, and waits until it is durable.
func mustUpdate(t *testing.T, s store.Store, fn func(tx store.Tx) error) {
	t.Helper()
	if err := update(s, fn); err != nil {
		t.Fatalf("transaction: %v", err)
	}
}

func put(t *testing.T, s store.Store, rows ...store.Row) {
	t.Helper()
	mustUpdate(t, s, func(tx store.Tx) error { return tx.Put(rows) })
}

func row(space uint64, group, state uint16, key, value string) store.Row {
	return store.Row{RowKey: store.RowKey{Space: space, Group: group, State: state, Key: []byte(key)}, Value: []byte(value)}
}

func keysOf(rows []store.Row) []store.RowKey {
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
	}
	return keys
}

func get(t *testing.T, s store.Store, keys ...store.RowKey) [][]byte {
	t.Helper()
	values, err := s.Get(t.Context(), keys)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if len(values) != len(keys) {
		t.Fatalf("get: %d values for %d keys", len(values), len(keys))
	}
	return values
}

// expect fails unless the rows are there with their values.
func expect(t *testing.T, s store.Store, rows ...store.Row) {
	t.Helper()
	for i, v := range get(t, s, keysOf(rows)...) {
		if v == nil || !bytes.Equal(v, rows[i].Value) {
			t.Fatalf("%s: %s, want %s", describe(rows[i].RowKey), short(v), short(rows[i].Value))
		}
	}
}

// expectAbsent fails if there are rows with these keys.
func expectAbsent(t *testing.T, s store.Store, keys ...store.RowKey) {
	t.Helper()
	for i, v := range get(t, s, keys...) {
		if v != nil {
			t.Fatalf("%s: %s, want no row", describe(keys[i]), short(v))
		}
	}
}

// scan reads a whole range, page by page, and checks what holds for every page.
func scan(ctx context.Context, read func(store.Range) (store.Page, error), r store.Range) ([]store.Row, error) {
	var all []store.Row
	for {
		page, err := read(r)
		if err != nil {
			return nil, err
		}
		if err := checkPage(page, r); err != nil {
			return nil, err
		}
		all = append(all, page.Rows...)
		if page.Done {
			return all, ctx.Err()
		}
		r.After = page.Rows[len(page.Rows)-1].Key
	}
}

func checkPage(page store.Page, r store.Range) error {
	if len(page.Rows) == 0 && !page.Done {
		return fmt.Errorf("a page is empty but not the last one")
	}
	if r.MaxRows > 0 && len(page.Rows) > r.MaxRows {
		return fmt.Errorf("a page has %d rows, allowed are %d", len(page.Rows), r.MaxRows)
	}
	after, size, last := r.After, 0, 0
	for i, row := range page.Rows {
		if row.Space != r.Space || row.Group != r.Group || row.State != r.State || !bytes.HasPrefix(row.Key, r.Prefix) {
			return fmt.Errorf("%s is outside of the range", describe(row.RowKey))
		}
		if (i > 0 || after != nil) && bytes.Compare(row.Key, after) <= 0 {
			return fmt.Errorf("%s is out of order", describe(row.RowKey))
		}
		if !r.KeysOnly && row.Value == nil {
			return fmt.Errorf("%s has no value", describe(row.RowKey))
		}
		after = row.Key
		last = len(row.Key) + len(row.Value)
		size += last
	}
	if r.MaxBytes > 0 && len(page.Rows) > 1 && size-last >= r.MaxBytes { // the last row may pass the bound
		return fmt.Errorf("a page of %d rows has %d bytes, allowed are %d", len(page.Rows), size, r.MaxBytes)
	}
	return nil
}

func scanStore(t *testing.T, s store.Store, r store.Range) []store.Row {
	t.Helper()
	rows, err := scan(t.Context(), func(r store.Range) (store.Page, error) { return s.Scan(t.Context(), r) }, r)
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	return rows
}

// filled returns n bytes that hold every byte value and depend on seed.
func filled(n int, seed uint64) []byte {
	r := rand.NewPCG(seed, uint64(n))
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

func describe(k store.RowKey) string {
	return fmt.Sprintf("row (space %d, group %d, state %d, key %s)", k.Space, k.Group, k.State, short(k.Key))
}

// short describes bytes without flooding the log.
func short(b []byte) string {
	switch {
	case b == nil:
		return "nothing"
	case len(b) <= 24:
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%d bytes ending in %q", len(b), b[len(b)-12:])
}
