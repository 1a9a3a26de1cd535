package ndb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

func TestHugeValue(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 64 MiB")
	}
	onEngines(t, func(t *testing.T, s *Store) {
		r := store.Row{RowKey: store.RowKey{Space: 1, Key: []byte("big")}, Value: filled(64<<20, 1)}
		put(t, s, r)
		checkRows(t, s, []store.Row{r})
		put(t, s, row(1, 0, 0, "big", "small"))
		if n := chunkRows(t, s); n != 0 {
			t.Errorf("%d chunks are left behind", n)
		}
	})
}

func TestTooLargeIsRefused(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		_, err := s.Update(t.Context(), func(tx store.Tx) error {
			return tx.Put([]store.Row{{RowKey: store.RowKey{Space: 1, Key: make([]byte, maxKeyBytes+1)}}})
		})
		if !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("key: %v", err)
		}
		_, err = s.Update(t.Context(), func(tx store.Tx) error {
			return tx.Put([]store.Row{{RowKey: store.RowKey{Space: 1}, Value: make([]byte, maxValueBytes+1)}})
		})
		if !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("value: %v", err)
		}
		_, err = s.Update(t.Context(), func(tx store.Tx) error { return tx.PutMeta(strings.Repeat("x", maxMetaKey+1), nil) })
		if !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("meta: %v", err)
		}
	})
}

// TestLongKeysAreOrdered scans keys that differ only behind the bytes that the table's index holds.
func TestLongKeysAreOrdered(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		base := strings.Repeat("k", inlineKey)
		var want []string
		for i := range 100 {
			want = append(want, fmt.Sprintf("%s%05d", base, i*7%100))
		}
		want = append(want, base, base[:10], base+"00001x", strings.Repeat("k", inlineKey-1)+"l", "z", "", strings.Repeat("\xff", 900), strings.Repeat("\xff", 901))
		var rows []store.Row
		for _, k := range want {
			rows = append(rows, row(1, 2, 3, k, "v"+k[max(0, len(k)-5):]))
		}
		rand.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		put(t, s, rows...)
		slices.Sort(want)
		for _, pageRows := range []int{1, 7, 1024} {
			for _, prefix := range []string{"", base[:3], base, base + "0000", "\xff"} {
				for _, keysOnly := range []bool{false, true} {
					got := scanAll(t, s, store.Range{Space: 1, Group: 2, State: 3, Prefix: []byte(prefix), MaxRows: pageRows, KeysOnly: keysOnly})
					checkScan(t, got, want, prefix, keysOnly)
				}
			}
		}
	})
}

func checkScan(t *testing.T, got []store.Row, all []string, prefix string, keysOnly bool) {
	t.Helper()
	var want []string
	for _, k := range all {
		if strings.HasPrefix(k, prefix) {
			want = append(want, k)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("prefix of %d bytes: %d rows, want %d", len(prefix), len(got), len(want))
	}
	for i, r := range got {
		if string(r.Key) != want[i] {
			t.Fatalf("row %d: key of %d bytes ending in %q, want %d bytes ending in %q", i, len(r.Key), tailOf(string(r.Key)), len(want[i]), tailOf(want[i]))
		}
		if v := "v" + want[i][max(0, len(want[i])-5):]; !keysOnly && string(r.Value) != v {
			t.Fatalf("row %d: value %q, want %q", i, r.Value, v)
		}
	}
}

func tailOf(s string) string { return s[max(0, len(s)-8):] }

func TestPagesAreBoundedByBytes(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		var rows []store.Row
		for i := range 40 {
			rows = append(rows, store.Row{RowKey: store.RowKey{Space: 1, Key: []byte(fmt.Sprintf("%03d", i))}, Value: filled(1000+i%2*30000, uint64(i))})
		}
		put(t, s, rows...)
		r := store.Range{Space: 1, MaxBytes: 100000}
		seen := 0
		for {
			page, err := s.Scan(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, row := range page.Rows {
				if !bytes.Equal(row.Value, rows[seen].Value) {
					t.Fatalf("row %d: wrong value", seen)
				}
				seen++
				size += len(row.Key) + len(row.Value)
			}
			if size > r.MaxBytes {
				t.Errorf("page of %d bytes", size)
			}
			if page.Done {
				break
			}
			r.After = page.Rows[len(page.Rows)-1].Key
		}
		if seen != len(rows) {
			t.Errorf("%d rows of %d", seen, len(rows))
		}
	})
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

func TestLockedNamesExcludeEachOther(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		const workers, rounds = 4, 25
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range rounds {
					_, err := s.Update(t.Context(), func(tx store.Tx) error {
						if v, err := tx.LockMeta("absent"); err != nil || v != nil {
							return errors.Join(err, wantNil(v))
						}
						v, err := tx.LockMeta("counter")
						if err != nil {
							return err
						}
						n := uint64(0)
						if v != nil {
							n = binary.BigEndian.Uint64(v)
						}
						return tx.PutMeta("counter", binary.BigEndian.AppendUint64(nil, n+1))
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		v, err := s.Meta(t.Context(), "counter")
		if err != nil || v == nil || binary.BigEndian.Uint64(v) != workers*rounds {
			t.Errorf("counter is %x (%v), want %d", v, err, workers*rounds)
		}
		all, err := s.ScanMeta(t.Context(), "")
		if err != nil || len(all) != 1 {
			t.Errorf("meta records %v (%v): a locked absent name became one", all, err)
		}
	})
}

func wantNil(v []byte) error {
	if v != nil {
		return fmt.Errorf("absent record has %d bytes", len(v))
	}
	return nil
}

func TestMetaRecords(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		big := filled(300000, 1)
		mustUpdate(t, s, func(tx store.Tx) error {
			if _, err := tx.LockMeta("b"); err != nil {
				return err
			}
			if all, err := tx.ScanMeta(""); err != nil || len(all) != 0 {
				return fmt.Errorf("a lock is visible as a record: %v %w", all, err)
			}
			return errors.Join(tx.PutMeta("a1", big), tx.PutMeta("a2", nil), tx.PutMeta("b", []byte("x")), tx.PutMeta("\xff\xff", []byte{0}))
		})
		all, err := s.ScanMeta(t.Context(), "a")
		if err != nil || len(all) != 2 || !bytes.Equal(all[0].Value, big) || all[1].Value == nil || len(all[1].Value) != 0 {
			t.Errorf("records with prefix a: %d (%v)", len(all), err)
		}
		if all, err := s.ScanMeta(t.Context(), "\xff"); err != nil || len(all) != 1 {
			t.Errorf("records with prefix ff: %v (%v)", all, err)
		}
		mustUpdate(t, s, func(tx store.Tx) error {
			return errors.Join(tx.DeleteMeta("a1"), tx.DeleteMeta("nothing"), tx.PutMeta("a2", []byte("now")))
		})
		if v, err := s.Meta(t.Context(), "a1"); err != nil || v != nil {
			t.Errorf("removed record: %x (%v)", v, err)
		}
		if n := chunkRows(t, s); n != 0 {
			t.Errorf("%d chunks are left behind", n)
		}
	})
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

// TestReadersNeverSeeHalfAValue reads a long value while it is replaced by others.
func TestReadersNeverSeeHalfAValue(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		key := store.RowKey{Space: 1, Key: []byte("k")}
		write := func(n byte) error {
			_, err := s.Update(t.Context(), func(tx store.Tx) error {
				return tx.Put([]store.Row{{RowKey: key, Value: bytes.Repeat([]byte{n}, 40000+int(n)*20000)}})
			})
			return err
		}
		if err := write(0); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			for n := range 40 {
				if err := write(byte(n % 4)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		for reads := 0; ; reads++ {
			select {
			case err := <-done:
				if err != nil || reads == 0 {
					t.Errorf("%d reads; writer: %v", reads, err)
				}
				return
			default:
			}
			v := getOne(t, s, key)
			page, err := s.Scan(t.Context(), store.Range{Space: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range [][]byte{v, page.Rows[0].Value} {
				if want := 40000 + int(v[0])*20000; len(v) != want || bytes.Count(v, v[:1]) != want {
					t.Fatalf("a value of %d bytes is a mixture", len(v))
				}
			}
		}
	})
}

func TestCallsEndWithTheirContext(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Get(ctx, []store.RowKey{{Space: 1}}); !errors.Is(err, context.Canceled) {
			t.Errorf("get: %v", err)
		}
		if _, err := s.Update(ctx, func(store.Tx) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("update: %v", err)
		}
		// A lock that another transaction holds is waited for no longer than the context lasts.
		locked, release := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := s.Update(t.Context(), func(tx store.Tx) error {
				_, err := tx.LockMeta("l")
				close(locked)
				<-release
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-locked
		ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := s.Update(ctx, func(tx store.Tx) error { _, err := tx.LockMeta("l"); return err })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(release)
		wg.Wait()
	})
}

func TestClosedStoreSaysSo(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), []store.RowKey{{Space: 1}}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("get: %v", err)
		}
		if _, err := s.Update(t.Context(), func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
			t.Errorf("update: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("second Close: %v", err)
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
			return errors.Join(err, wantNil(v))
		})
	})
}
