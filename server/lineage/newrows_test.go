package lineage

import (
	"context"
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// countingStore counts the rows that transactions look for.
type countingStore struct {
	store.Store
	asked int
}

type countingTx struct {
	store.Tx
	s *countingStore
}

func (s *countingStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(countingTx{tx, s}) })
}

func (t countingTx) Get(keys []store.RowKey) ([][]byte, error) {
	t.s.asked += len(keys)
	return t.Tx.Get(keys)
}

func openLineage(t *testing.T, st store.Store, opt Options) *Lineage {
	t.Helper()
	opt.Log = zerolog.Nop()
	if opt.RowCacheBytes == 0 {
		opt.RowCacheBytes = 1 << 20 // as in front of a database
	}
	l, err := New(t.Context(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func reattach(t *testing.T, l *Lineage, id uint64, token string) *Session {
	t.Helper()
	s, err := l.Attach(t.Context(), id, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RegisterState(t.Context(), "value", KindValue); err != nil {
		t.Fatal(err)
	}
	return s
}

func putKeys(t *testing.T, s *Session, seq, epoch uint64, from, to int) {
	t.Helper()
	var entries []Entry
	for i := from; i < to; i++ {
		entries = append(entries, Entry{Op: OpPut, Key: fmt.Appendf(nil, "key-%d", i), Value: fmt.Appendf(nil, "%d", epoch)})
	}
	if err := s.Write(t.Context(), seq, epoch, entries); err != nil {
		t.Fatal(err)
	}
}

func takeSnapshot(t *testing.T, s *Session, id string, epoch uint64) {
	t.Helper()
	takeSnapshotOf(t, s, SnapshotRequest{ID: id, Epoch: epoch, Kind: SnapshotCheckpoint})
}

func takeSnapshotOf(t *testing.T, s *Session, request SnapshotRequest) {
	t.Helper()
	_, commit, err := s.Snapshot(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if err := commit.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestNewRowsAreNotLookedFor counts the rows that writes read: those of a fresh session only when they were
// written before, also after a reconnect; those of a restored session always.
func TestNewRowsAreNotLookedFor(t *testing.T) {
	st := &countingStore{Store: memory.New()}
	l := openLineage(t, st, Options{})
	s := openForRace(t, l, "t", nil)
	expect := func(what string, least, most int) {
		t.Helper()
		if st.asked < least || st.asked > most {
			t.Errorf("%s: %d rows were read, expected %d to %d", what, st.asked, least, most)
		}
		st.asked = 0
	}
	putKeys(t, s, 1, 1, 0, 50_000)
	expect("new rows", 0, 2_000)
	putKeys(t, s, 2, 1, 0, 50_000)
	expect("the same rows", 50_000, 50_000)
	s = reattach(t, l, s.ID(), "t")
	putKeys(t, s, 3, 1, 50_000, 60_000)
	expect("new rows after a reconnect", 0, 500)
	takeSnapshot(t, s, "s", 1)
	restored := openForRace(t, l, "u", []Base{{"s", Range{0, 0}}})
	putKeys(t, restored, 1, 1, 60_000, 61_000)
	expect("rows of a restored session", 1_000, 1_000)
}

// TestNewRowsWithAnotherServer has a session write at two servers in turn. A server that did not see a row being
// written must not take it for new: the version that a snapshot needs would be gone.
func TestNewRowsWithAnotherServer(t *testing.T) {
	st := memory.New()
	first, second := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	s := openForRace(t, first, "t", nil)
	putKeys(t, s, 1, 1, 0, 10)
	at := reattach(t, second, s.ID(), "t")
	putKeys(t, at, 2, 2, 10, 20)
	takeSnapshot(t, at, "s", 2)
	if err := s.Write(t.Context(), 3, 3, []Entry{{Op: OpPut, Key: []byte("key-10")}}); err == nil {
		t.Fatal("a write through the older stream succeeded")
	}
	at = reattach(t, first, s.ID(), "t")
	putKeys(t, at, 3, 3, 0, 30)
	restored := openForRace(t, first, "u", []Base{{"s", Range{0, 0}}})
	for i := range 30 {
		values, err := restored.Read(t.Context(), []Entry{{Key: fmt.Appendf(nil, "key-%d", i)}})
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		switch {
		case i < 10:
			want = "1"
		case i < 20:
			want = "2"
		}
		if string(values[0]) != want {
			t.Errorf("key %d: the snapshot shows %q, expected %q", i, values[0], want)
		}
	}
}

// TestNewRowsOfForks has a fork write rows that were copied into its row space before: it started that, but it is not
// the only one that writes there.
func TestNewRowsOfForks(t *testing.T) {
	l := openLineage(t, memory.New(), Options{})
	parent := openForRace(t, l, "parent", nil)
	putKeys(t, parent, 1, 1, 0, 100)
	takeSnapshot(t, parent, "base", 1)
	result, err := l.Open(t.Context(), OpenRequest{Token: "fork", JobID: "fork", GroupCount: 1, Bases: []Base{{"base", Range{0, 0}}}})
	if err != nil {
		t.Fatal(err)
	}
	fork := reattach(t, l, result.SessionID, "fork")
	for f := newFlattening(fork.attached); !f.done; {
		if _, err := f.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	takeSnapshot(t, fork, "flat", 1)
	fork = reattach(t, l, fork.ID(), "fork") // it has written nothing yet
	putKeys(t, fork, 1, 2, 0, 100)
	restored := openForRace(t, l, "restored", []Base{{"flat", Range{0, 0}}})
	for i := range 100 {
		values, err := restored.Read(t.Context(), []Entry{{Key: fmt.Appendf(nil, "key-%d", i)}})
		if err != nil || string(values[0]) != "1" {
			t.Fatalf("key %d: the snapshot shows %q, %v", i, values[0], err)
		}
	}
}

// TestNewRowsStayWithinTheirMemory has two sessions share too little: every write still counts, and what was taken is
// given back when they end.
func TestNewRowsStayWithinTheirMemory(t *testing.T) {
	l := openLineage(t, memory.New(), Options{MaxFilterBytes: 25_000})
	a, b := openForRace(t, l, "a", nil), openForRace(t, l, "b", nil)
	for i, s := range []*Session{a, b} {
		for frame := range 5 {
			putKeys(t, s, uint64(frame+1), 1, frame*10_000, (frame+1)*10_000)
		}
		if used := l.filters.used.Load(); used > 25_000 {
			t.Fatalf("%d bytes are used", used)
		}
		values, err := s.Read(t.Context(), []Entry{{Key: []byte("key-0")}, {Key: []byte("key-49999")}})
		if err != nil || string(values[0]) != "1" || string(values[1]) != "1" {
			t.Fatalf("session %d: %q, %v", i, values, err)
		}
	}
	for _, s := range []*Session{a, b} {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if used := l.filters.used.Load(); used != 0 {
		t.Fatalf("%d bytes are still used", used)
	}
}
