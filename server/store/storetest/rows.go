package storetest

import (
	"errors"
	"math"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

func testRows(t *testing.T, s store.Store) {
	if s.Name() == "" {
		t.Error("the store has no name")
	}
	if values := get(t, s); len(values) != 0 {
		t.Errorf("no keys: %d values", len(values))
	}
	a, b, empty := row(1, 2, 3, "a", "1"), row(1, 2, 3, "b", "2"), row(1, 2, 3, "", "")
	expectAbsent(t, s, a.RowKey, b.RowKey, empty.RowKey)
	put(t, s, b, a, empty)
	expect(t, s, a, empty, b, a) // in the order of the keys, which may repeat
	a.Value = []byte("new")
	put(t, s, a)
	expect(t, s, a, b)
	mustUpdate(t, s, func(tx store.Tx) error {
		return tx.Delete([]store.RowKey{a.RowKey, row(1, 2, 3, "absent", "").RowKey})
	})
	expectAbsent(t, s, a.RowKey)
	expect(t, s, b, empty)
	put(t, s, a)
	expect(t, s, a)
	mustUpdate(t, s, func(tx store.Tx) error { return errors.Join(tx.Put(nil), tx.Delete(nil)) })
	b.Value = nil // a stored row always has a value
	put(t, s, b)
	b.Value = []byte{}
	expect(t, s, b)
}

// testNeighbours writes rows whose names differ in one component only.
func testNeighbours(t *testing.T, s store.Store) {
	var rows []store.Row
	for _, space := range []uint64{1, 2, 256, 1 << 32, math.MaxUint64} {
		for _, group := range []uint16{0, 1, 127, 256, math.MaxUint16} {
			for _, state := range []uint16{0, 1, 256, math.MaxUint16} {
				for _, key := range []string{"", "\x00", "k", "k\x00", "\xff"} {
					r := row(space, group, state, key, "")
					r.Value = []byte(describe(r.RowKey))
					rows = append(rows, r)
				}
			}
		}
	}
	put(t, s, rows...)
	expect(t, s, rows...)
	for _, r := range rows {
		if len(r.Key) > 0 {
			continue
		}
		found := scanStore(t, s, store.Range{Space: r.Space, Group: r.Group, State: r.State})
		if len(found) != 5 {
			t.Fatalf("%s: a scan of its state finds %d rows, want 5", describe(r.RowKey), len(found))
		}
	}
	mustUpdate(t, s, func(tx store.Tx) error { return tx.Delete(keysOf(rows[:1])) })
	expectAbsent(t, s, rows[0].RowKey)
	expect(t, s, rows[1:]...)
}

func testEverySize(t *testing.T, s store.Store) {
	limits := s.Limits()
	if limits.MaxKeyBytes < 3073 || limits.MaxValueBytes < 64<<20 {
		t.Fatalf("limits %+v are below what jobs need", limits)
	}
	keySizes := []int{0, 1, 2, 255, 256, 767, 768, 769, 3071, 3072, 3073, 65535, 65536}
	valueSizes := []int{0, 1, 255, 256, 1999, 2000, 2001, 17999, 18000, 18001, 65535, 65536, 1 << 20}
	var rows []store.Row
	for i, k := range keySizes {
		if k > limits.MaxKeyBytes {
			continue
		}
		for j, v := range valueSizes {
			rows = append(rows, store.Row{RowKey: store.RowKey{Space: 7, Group: uint16(j), State: 3, Key: filled(k, uint64(i))}, Value: filled(v, uint64(j))})
		}
	}
	put(t, s, rows...)
	expect(t, s, rows...)
	for i := range rows { // every size is replaced by another one
		rows[i].Value = filled(valueSizes[(i*7+1)%len(valueSizes)], uint64(i))
	}
	put(t, s, rows...)
	expect(t, s, rows...)
	mustUpdate(t, s, func(tx store.Tx) error { return tx.Delete(keysOf(rows)) })
	expectAbsent(t, s, keysOf(rows)...)
}

func testHugeValue(t *testing.T, s store.Store) {
	if testing.Short() {
		t.Skip("moves values of 64 MiB")
	}
	r := row(1, 1, 1, "huge", "")
	r.Value = filled(64<<20, 1)
	put(t, s, r)
	expect(t, s, r)
	found := scanStore(t, s, store.Range{Space: 1, Group: 1, State: 1})
	if len(found) != 1 || len(found[0].Value) != 64<<20 {
		t.Errorf("a scan finds %d rows", len(found))
	}
	r.Value = []byte("small")
	put(t, s, r)
	expect(t, s, r)
}

func testTooLarge(t *testing.T, s store.Store) {
	limits := s.Limits()
	refuse := func(what string, fn func(tx store.Tx) error) {
		t.Helper()
		if _, err := s.Update(t.Context(), fn); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("%s: %v, want %v", what, err, store.ErrTooLarge)
		}
	}
	key := store.RowKey{Space: 1, Key: make([]byte, limits.MaxKeyBytes+1)}
	refuse("key", func(tx store.Tx) error { return tx.Put([]store.Row{{RowKey: key, Value: []byte("v")}}) })
	refuse("meta key", func(tx store.Tx) error { return tx.PutMeta(string(make([]byte, limits.MaxMetaKey+1)), []byte("v")) })
	if limits.MaxValueBytes <= 256<<20 && !testing.Short() {
		value := make([]byte, limits.MaxValueBytes+1)
		refuse("value", func(tx store.Tx) error { return tx.Put([]store.Row{{RowKey: store.RowKey{Space: 1}, Value: value}}) })
	}
	largest := store.Row{RowKey: store.RowKey{Space: 1, Key: filled(limits.MaxKeyBytes, 1)}, Value: []byte("v")}
	put(t, s, largest)
	expect(t, s, largest)
}
