package ndb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

func put(t testing.TB, s *Store, rows ...store.Row) {
	t.Helper()
	mustUpdate(t, s, func(tx store.Tx) error { return tx.Put(rows) })
}

func mustUpdate(t testing.TB, s *Store, fn func(store.Tx) error) {
	t.Helper()
	commit, err := s.Update(t.Context(), fn)
	if err != nil {
		t.Fatal(err)
	}
	if err := commit.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func row(space uint64, group, state uint16, key, value string) store.Row {
	return store.Row{RowKey: store.RowKey{Space: space, Group: group, State: state, Key: []byte(key)}, Value: []byte(value)}
}

func getOne(t testing.TB, s *Store, key store.RowKey) []byte {
	t.Helper()
	values, err := s.Get(t.Context(), []store.RowKey{key})
	if err != nil {
		t.Fatal(err)
	}
	return values[0]
}

// filled returns n bytes that hold every byte value and differ by seed.
func filled(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewPCG(seed, uint64(n))
	for i := 0; i < n; i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], r.Uint64())
		copy(b[i:], word[:])
	}
	return b
}

// chunkRows counts the rows of table chunk.
func chunkRows(t testing.TB, s *Store) int {
	t.Helper()
	var n int
	if err := s.hosts.all[0].db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM chunk").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKeysAndValuesOfEverySize(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		keySizes := []int{0, 1, 2, inlineKey - 1, inlineKey, inlineKey + 1, inlineValue, inlineValue + 1, 3071, 3072, 3073, inlineValue + chunkBytes, inlineValue + chunkBytes + 1, maxKeyBytes}
		valueSizes := []int{0, 1, inlineValue - 1, inlineValue, inlineValue + 1, inlineValue + chunkBytes - 1, inlineValue + chunkBytes, inlineValue + chunkBytes + 1, 1 << 20}
		var rows []store.Row
		for i, ks := range keySizes {
			for j, vs := range valueSizes {
				rows = append(rows, store.Row{RowKey: store.RowKey{Space: 7, Group: uint16(j), State: 3, Key: filled(ks, uint64(i))}, Value: filled(vs, uint64(j))})
			}
		}
		put(t, s, rows...)
		checkRows(t, s, rows)
		for i := range rows { // overwrite with another size: chunks of the old values must go
			rows[i].Value = filled(valueSizes[(i+1)%len(valueSizes)], uint64(i))
		}
		put(t, s, rows...)
		checkRows(t, s, rows)
		scanned := scanAll(t, s, store.Range{Space: 7, Group: 4, State: 3})
		if len(scanned) != len(keySizes) {
			t.Errorf("scan found %d rows of %d", len(scanned), len(keySizes))
		}
		mustUpdate(t, s, func(tx store.Tx) error {
			keys := make([]store.RowKey, len(rows))
			for i := range rows {
				keys[i] = rows[i].RowKey
			}
			return tx.Delete(keys)
		})
		for i := range rows {
			if v := getOne(t, s, rows[i].RowKey); v != nil {
				t.Errorf("key of %d bytes: value of %d bytes after its removal", len(rows[i].Key), len(v))
			}
		}
		if n := chunkRows(t, s); n != 0 {
			t.Errorf("%d chunks are left behind", n)
		}
	})
}

func checkRows(t testing.TB, s *Store, rows []store.Row) {
	t.Helper()
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
	}
	values, err := s.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if values[i] == nil || !bytes.Equal(values[i], rows[i].Value) {
			t.Fatalf("key of %d bytes, value of %d bytes: got %d bytes (nil: %v)", len(rows[i].Key), len(rows[i].Value), len(values[i]), values[i] == nil)
		}
	}
}

func scanAll(t testing.TB, s *Store, r store.Range) []store.Row {
	t.Helper()
	var all []store.Row
	for {
		page, err := s.Scan(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Rows...)
		if page.Done {
			return all
		}
		if len(page.Rows) == 0 {
			t.Fatal("a page is empty, but not the last one")
		}
		r.After = page.Rows[len(page.Rows)-1].Key
	}
}

// TestAgainstModel runs random transactions on the store and on a map.
func TestAgainstModel(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		model := map[string][]byte{}
		keys := modelKeys(r)
		for step := range 60 {
			next := cloneMap(model)
			fail := r.IntN(5) == 0
			_, err := s.Update(t.Context(), func(tx store.Tx) error {
				next = cloneMap(model)
				for range 1 + r.IntN(4) {
					if err := modelStep(r, tx, keys, next); err != nil {
						return err
					}
				}
				if fail {
					return errFail
				}
				return nil
			})
			switch {
			case fail && !errors.Is(err, errFail):
				t.Fatalf("step %d: %v, want the function's error", step, err)
			case !fail && err != nil:
				t.Fatalf("step %d: %v", step, err)
			case !fail:
				model = next
			}
			checkModel(t, s, keys, model)
		}
	})
}

var errFail = errors.New("the function fails on purpose")

func modelKeys(r *rand.Rand) []string {
	keys := []string{"", "a", "\x00", "\xff"}
	for range 40 {
		size := []int{3, 20, inlineKey - 1, inlineKey, inlineKey + 1, inlineKey + 40}[r.IntN(6)]
		k := bytes.Repeat([]byte{byte('a' + r.IntN(2))}, size)
		k[len(k)-1] = byte(r.IntN(256))
		keys = append(keys, string(k))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func cloneMap(m map[string][]byte) map[string][]byte {
	c := make(map[string][]byte, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// modelStep does one random thing to the transaction and the model.
func modelStep(r *rand.Rand, tx store.Tx, keys []string, model map[string][]byte) error {
	some := map[string]bool{}
	for range 1 + r.IntN(10) {
		some[keys[r.IntN(len(keys))]] = true
	}
	var rowKeys []store.RowKey
	var rows []store.Row
	for k := range some {
		size := []int{0, 5, 200, inlineValue, inlineValue + 1, 3 * chunkBytes}[r.IntN(6)]
		rw := row(1, 5, 1, k, string(filled(size, r.Uint64())))
		rows = append(rows, rw)
		rowKeys = append(rowKeys, rw.RowKey)
	}
	switch r.IntN(4) {
	case 0, 1:
		for _, rw := range rows {
			model[string(rw.Key)] = rw.Value
		}
		return tx.Put(rows)
	case 2:
		for k := range some {
			delete(model, k)
		}
		return tx.Delete(rowKeys)
	}
	values, err := tx.Get(rowKeys)
	if err != nil {
		return err
	}
	for i, k := range rowKeys {
		want, ok := model[string(k.Key)]
		if ok != (values[i] != nil) || !bytes.Equal(values[i], want) {
			return fmt.Errorf("inside the transaction: key of %d bytes has %d bytes, want %d", len(k.Key), len(values[i]), len(want))
		}
	}
	page, err := tx.Scan(store.Range{Space: 1, Group: 5, State: 1, MaxRows: 1000, MaxBytes: 1 << 30})
	if err != nil {
		return err
	}
	return compareScan(page.Rows, model)
}

func compareScan(rows []store.Row, model map[string][]byte) error {
	var want []string
	for k := range model {
		want = append(want, k)
	}
	slices.Sort(want)
	if len(rows) != len(want) {
		return fmt.Errorf("scan: %d rows, want %d", len(rows), len(want))
	}
	for i, k := range want {
		if string(rows[i].Key) != k || !bytes.Equal(rows[i].Value, model[k]) {
			return fmt.Errorf("scan: row %d has a key of %d bytes and a value of %d, want %d and %d", i, len(rows[i].Key), len(rows[i].Value), len(k), len(model[k]))
		}
	}
	return nil
}

func checkModel(t *testing.T, s *Store, keys []string, model map[string][]byte) {
	t.Helper()
	var rowKeys []store.RowKey
	for _, k := range keys {
		rowKeys = append(rowKeys, store.RowKey{Space: 1, Group: 5, State: 1, Key: []byte(k)})
	}
	values, err := s.Get(t.Context(), rowKeys)
	if err != nil {
		t.Fatal(err)
	}
	chunks := 0
	for i, k := range keys {
		want, ok := model[k]
		if ok != (values[i] != nil) || !bytes.Equal(values[i], want) {
			t.Fatalf("key of %d bytes has %d bytes, want %d", len(k), len(values[i]), len(want))
		}
		if ok {
			ch := change{full: nil, value: want}
			if len(k) > inlineKey {
				ch.full = []byte(k)
			}
			size, _ := ch.payloadSize()
			chunks += appendix{total: uint64(size)}.chunks()
		}
	}
	if n := chunkRows(t, s); n != chunks {
		t.Fatalf("%d chunk rows, want %d", n, chunks)
	}
	rows := scanAll(t, s, store.Range{Space: 1, Group: 5, State: 1, MaxRows: 7})
	if err := compareScan(rows, model); err != nil {
		t.Fatal(err)
	}
}

func TestDropSpace(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		for space := uint64(1); space <= 2; space++ {
			var rows []store.Row
			for i := range 5000 {
				rows = append(rows, row(space, uint16(i%7*100), uint16(i%2), fmt.Sprint(i), "value"))
			}
			rows = append(rows, row(space, 65535, 1, "long", string(filled(100000, 1))))
			put(t, s, rows...)
		}
		size, err := s.SpaceBytes(t.Context(), 1)
		if err != nil || size < 5000*50+100000 || size > 5000*200+200000 {
			t.Errorf("size of the space: %d (%v)", size, err)
		}
		for range 2 {
			if err := s.DropSpace(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if size, err := s.SpaceBytes(t.Context(), 1); err != nil || size != 0 {
				t.Errorf("size of a dropped space: %d (%v)", size, err)
			}
		}
		if v := getOne(t, s, store.RowKey{Space: 1, Group: 65535, State: 1, Key: []byte("long")}); v != nil {
			t.Errorf("a row is left behind")
		}
		if rows := scanAll(t, s, store.Range{Space: 2, Group: 100, State: 1}); len(rows) == 0 {
			t.Errorf("the other space is gone")
		}
		if v := getOne(t, s, store.RowKey{Space: 2, Group: 65535, State: 1, Key: []byte("long")}); len(v) != 100000 {
			t.Errorf("the other space has lost its chunks")
		}
		if n, err := s.Bytes(t.Context()); err != nil || n == 0 {
			t.Errorf("size of the store: %d (%v)", n, err)
		}
	})
}

// TestPanicLeavesNoTransaction: the connection of a function that panicked must not be used again
// with its transaction open.
func TestPanicLeavesNoTransaction(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		func() {
			defer func() { _ = recover() }()
			_, _ = s.Update(t.Context(), func(tx store.Tx) error {
				if _, err := tx.LockMeta("l"); err != nil {
					return err
				}
				if err := tx.PutMeta("l", []byte("x")); err != nil {
					return err
				}
				panic("on purpose")
			})
		}()
		mustUpdate(t, s, func(tx store.Tx) error {
			v, err := tx.LockMeta("l")
			if v != nil {
				return errors.New("the record of a transaction that did not end is there")
			}
			return err
		})
	})
}
