package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

func testOwnWrites(t *testing.T, s store.Store) {
	a, b, c := row(1, 2, 3, "a", "old"), row(1, 2, 3, "b", "old"), row(1, 2, 3, "c", "old")
	long := row(1, 2, 3, "long", "")
	long.Value = filled(50000, 1)
	put(t, s, a, b)
	mustUpdate(t, s, func(tx store.Tx) error {
		newA := row(1, 2, 3, "a", "new")
		if err := errors.Join(tx.Put([]store.Row{newA, c, long}), tx.Delete([]store.RowKey{b.RowKey})); err != nil {
			return err
		}
		values, err := tx.Get(keysOf([]store.Row{a, b, c, long}))
		if err != nil {
			return err
		}
		if string(values[0]) != "new" || values[1] != nil || string(values[2]) != "old" || !bytes.Equal(values[3], long.Value) {
			return fmt.Errorf("inside: %s, %s, %s, %s", short(values[0]), short(values[1]), short(values[2]), short(values[3]))
		}
		rows, err := scan(t.Context(), tx.Scan, store.Range{Space: 1, Group: 2, State: 3, MaxRows: 2})
		if err != nil {
			return err
		}
		if len(rows) != 3 || string(rows[0].Value) != "new" || string(rows[1].Key) != "c" || !bytes.Equal(rows[2].Value, long.Value) {
			return fmt.Errorf("a scan inside finds %d rows", len(rows))
		}
		// A later call wins.
		c.Value = []byte("newest")
		long.Value = filled(30000, 2)
		return errors.Join(tx.Put([]store.Row{c, long}), tx.Delete([]store.RowKey{a.RowKey}), tx.Put([]store.Row{b}))
	})
	expect(t, s, b, c, long)
	expectAbsent(t, s, a.RowKey)
}

var errOnPurpose = errors.New("the function fails on purpose")

func testFailedTransaction(t *testing.T, s store.Store) {
	a, long := row(1, 2, 3, "a", "old"), row(1, 2, 3, "long", "")
	long.Value = filled(50000, 1)
	put(t, s, a, long)
	mustUpdate(t, s, func(tx store.Tx) error { return tx.PutMeta("m", []byte("old")) })
	_, err := s.Update(t.Context(), func(tx store.Tx) error {
		_, err := tx.LockMeta("m")
		return errors.Join(err, tx.Put([]store.Row{row(1, 2, 3, "a", "new"), row(1, 2, 3, "b", "new"), row(1, 2, 3, "long", "short")}),
			tx.Delete([]store.RowKey{long.RowKey}), tx.PutMeta("m", []byte("new")), tx.PutMeta("n", []byte("new")), errOnPurpose)
	})
	if !errors.Is(err, errOnPurpose) {
		t.Errorf("the error is %v, want the function's", err)
	}
	expect(t, s, a, long)
	expectAbsent(t, s, row(1, 2, 3, "b", "").RowKey)
	if v, err := s.Meta(t.Context(), "m"); err != nil || string(v) != "old" {
		t.Errorf("meta record: %s (%v)", short(v), err)
	}
	if v, err := s.Meta(t.Context(), "n"); err != nil || v != nil {
		t.Errorf("meta record of a failed transaction: %s (%v)", short(v), err)
	}
}

func testMeta(t *testing.T, s store.Store) {
	big := filled(300000, 1)
	mustUpdate(t, s, func(tx store.Tx) error {
		if v, err := tx.LockMeta("b"); err != nil || v != nil {
			return fmt.Errorf("an absent record: %s (%w)", short(v), err)
		}
		if all, err := tx.ScanMeta(""); err != nil || len(all) != 0 {
			return fmt.Errorf("a locked name is a record: %v (%w)", all, err)
		}
		if err := errors.Join(tx.PutMeta("a1", big), tx.PutMeta("a2", nil), tx.PutMeta("b", []byte("x")), tx.PutMeta("\xff\xff", []byte{0})); err != nil {
			return err
		}
		if v, err := tx.Meta("a1"); err != nil || !bytes.Equal(v, big) {
			return fmt.Errorf("own record: %s (%w)", short(v), err)
		}
		all, err := tx.ScanMeta("a")
		if err != nil || len(all) != 2 {
			return fmt.Errorf("own records: %d (%w)", len(all), err)
		}
		return nil
	})
	expectMeta(t, s, "", "a1", "a2", "b", "\xff\xff")
	expectMeta(t, s, "a", "a1", "a2")
	expectMeta(t, s, "a1", "a1")
	expectMeta(t, s, "\xff", "\xff\xff")
	expectMeta(t, s, "c")
	if v, err := s.Meta(t.Context(), "a2"); err != nil || v == nil || len(v) != 0 {
		t.Errorf("an empty record: %s (%v)", short(v), err)
	}
	if v, err := s.Meta(t.Context(), "a1"); err != nil || !bytes.Equal(v, big) {
		t.Errorf("a large record: %s (%v)", short(v), err)
	}
	mustUpdate(t, s, func(tx store.Tx) error {
		if v, err := tx.LockMeta("b"); err != nil || string(v) != "x" {
			return fmt.Errorf("locked record: %s (%w)", short(v), err)
		}
		return errors.Join(tx.DeleteMeta("b"), tx.DeleteMeta("nothing"), tx.DeleteMeta("a1"), tx.PutMeta("a2", big))
	})
	expectMeta(t, s, "", "a2", "\xff\xff")
	many := make([]string, 0, 2500)
	mustUpdate(t, s, func(tx store.Tx) error {
		many = many[:0]
		for i := range 2500 {
			name := fmt.Sprintf("many/%05d", i)
			many = append(many, name)
			if err := tx.PutMeta(name, []byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	expectMeta(t, s, "many/", many...)
}

func expectMeta(t *testing.T, s store.Store, prefix string, names ...string) {
	t.Helper()
	all, err := s.ScanMeta(t.Context(), prefix)
	if err != nil || len(all) != len(names) {
		t.Fatalf("records with prefix %q: %d, want %d (%v)", prefix, len(all), len(names), err)
	}
	for i, m := range all {
		if m.Key != names[i] || m.Value == nil {
			t.Fatalf("record %d with prefix %q is %q, want %q", i, prefix, m.Key, names[i])
		}
	}
}

// testLockMeta: two transactions that lock the same name run one after the other, whether there is a
// record of this name or not.
func testLockMeta(t *testing.T, s store.Store) {
	const workers, rounds = 4, 25
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				if _, err := s.Update(t.Context(), func(tx store.Tx) error { return count(tx, &inside) }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if v, err := s.Meta(t.Context(), "counter"); err != nil || v == nil || binary.BigEndian.Uint64(v) != workers*rounds {
		t.Errorf("counter is %x, want %d (%v)", v, workers*rounds, err)
	}
	expectMeta(t, s, "", "counter")
}

// count raises a counter under the lock of a name that has no record.
func count(tx store.Tx, inside *atomic.Int32) error {
	if v, err := tx.LockMeta("absent"); err != nil || v != nil {
		return fmt.Errorf("lock of an absent record: %s: %w", short(v), err)
	}
	if n := inside.Add(1); n != 1 {
		return fmt.Errorf("%d transactions hold one lock", n)
	}
	defer inside.Add(-1)
	v, err := tx.Meta("counter")
	if err != nil {
		return err
	}
	n := uint64(0)
	if v != nil {
		n = binary.BigEndian.Uint64(v)
	}
	if err := tx.PutMeta("counter", binary.BigEndian.AppendUint64(nil, n+1)); err != nil {
		return err
	}
	if v, err := tx.LockMeta("absent"); err != nil || v != nil {
		return fmt.Errorf("second lock of an absent record: %s: %w", short(v), err)
	}
	return nil
}

// testLockedRows: rows that a lock covers are seen as the lock's last holder left them.
func testLockedRows(t *testing.T, s store.Store) {
	const workers, rounds = 3, 20
	keys := []store.RowKey{row(1, 1, 1, "a", "").RowKey, row(1, 2, 1, "b", "").RowKey}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				_, err := s.Update(t.Context(), func(tx store.Tx) error {
					if _, err := tx.LockMeta("lane"); err != nil {
						return err
					}
					values, err := tx.Get(keys)
					if err != nil {
						return err
					}
					if !bytes.Equal(values[0], values[1]) {
						return fmt.Errorf("rows that change together are %s and %s", short(values[0]), short(values[1]))
					}
					n := uint64(0)
					if values[0] != nil {
						n = binary.BigEndian.Uint64(values[0])
					}
					next := binary.BigEndian.AppendUint64(nil, n+1)
					return tx.Put([]store.Row{{RowKey: keys[0], Value: next}, {RowKey: keys[1], Value: next}})
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, v := range get(t, s, keys...) {
		if v == nil || binary.BigEndian.Uint64(v) != workers*rounds {
			t.Errorf("row %d counts %x, want %d", i, v, workers*rounds)
		}
	}
}

// testReaders reads rows, long and short, while they are replaced by others.
func (su *suite) testReaders(t *testing.T, s store.Store) {
	write := func(n byte) error {
		rows := make([]store.Row, 5)
		for i := range rows {
			rows[i] = row(1, 1, 1, fmt.Sprint(i), "")
			rows[i].Value = bytes.Repeat([]byte{n}, 10+i*30000+int(n)*7000)
		}
		_, err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Put(rows) })
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
				t.Errorf("%d reads; the writer: %v", reads, err)
			}
			return
		default:
		}
		page, err := s.Scan(t.Context(), store.Range{Space: 1, Group: 1, State: 1})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range page.Rows {
			n := r.Value[0]
			if want := 10 + i*30000 + int(n)*7000; len(r.Value) != want || bytes.Count(r.Value, []byte{n}) != want {
				t.Fatalf("row %d is a mixture of two values", i)
			}
			if n != page.Rows[0].Value[0] && !su.readCommitted {
				t.Fatalf("rows 0 and %d of a page are from different transactions", i)
			}
		}
	}
}

func testDropManyRows(t *testing.T, s store.Store) {
	var second []store.Row
	for space := uint64(1); space <= 2; space++ {
		var rows []store.Row
		for i := range 5000 {
			rows = append(rows, row(space, uint16(i%7*100), uint16(i%2), fmt.Sprint(i), "a value of some length"))
		}
		long := row(space, 65535, 1, "long", "")
		long.Value = filled(100000, 1)
		rows = append(rows, long)
		put(t, s, rows...)
		second = rows
	}
	if _, err := s.SpaceBytes(t.Context(), 1); err != nil {
		t.Errorf("size of the space: %v", err)
	}
	if _, err := s.Bytes(t.Context()); err != nil {
		t.Errorf("size of the store: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	err := s.DropSpace(ctx, 1) // interrupted, or very fast
	cancel()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	for range 2 {
		if err := s.DropSpace(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for i := range second {
			key := second[i].RowKey
			key.Space = 1
			second[i].RowKey, key = key, second[i].RowKey
		}
		expectAbsent(t, s, keysOf(second)...)
		for i := range second {
			second[i].Space = 2
		}
	}
	expect(t, s, second...)
	again := row(1, 65535, 1, "long", "back")
	put(t, s, again)
	expect(t, s, again)
}

// testLockWait: a lock that another transaction holds is waited for no longer than the context lasts.
func testLockWait(t *testing.T, s store.Store) {
	locked, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var once sync.Once
		if _, err := s.Update(t.Context(), func(tx store.Tx) error {
			_, err := tx.LockMeta("l")
			once.Do(func() { close(locked) })
			<-release
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	<-locked
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Update(ctx, func(tx store.Tx) error { _, err := tx.LockMeta("l"); return err }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a lock: %v", err)
	}
	close(release)
	wg.Wait()
}

func (su *suite) testReopen(t *testing.T, s store.Store) {
	rows := []store.Row{row(1, 2, 3, "", ""), row(1, 2, 3, "k", "v"), row(9, 65535, 65535, "long", string(filled(100000, 1)))}
	put(t, s, rows...)
	mustUpdate(t, s, func(tx store.Tx) error { return tx.PutMeta("m", []byte("x")) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = su.reopen(t, s)
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	expect(t, s, rows...)
	expectMeta(t, s, "", "m")
}
