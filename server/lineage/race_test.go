package lineage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// TestFencedWriterChangesNothing races a writer with the session that takes its place: whatever the
// older one wrote after the newer one was opened must be invisible, whatever came before must be in
// the snapshot.
func TestFencedWriterChangesNothing(t *testing.T) {
	ctx := context.Background()
	for round := range 50 {
		l, err := New(ctx, memory.New(), Options{Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		old := openForRace(t, l, "old", nil)
		put := func(s *Session, seq, epoch uint64, value string) error {
			return s.Write(ctx, seq, epoch, []Entry{{Op: OpPut, Key: []byte("k"), Value: []byte(value)}})
		}
		if err := put(old, 1, 1, "kept"); err != nil {
			t.Fatal(err)
		}
		_, commit, err := old.Snapshot(ctx, SnapshotRequest{ID: "s", Epoch: 1, Kind: SnapshotCheckpoint})
		if err != nil {
			t.Fatal(err)
		}
		if err := commit.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			for seq := uint64(2); ; seq++ {
				if err := put(old, seq, 2, fmt.Sprintf("lost-%d", seq)); err != nil {
					ended <- err
					return
				}
			}
		}()
		young := openForRace(t, l, "young", []Base{{"s", Range{0, 0}}})
		for range 20 {
			values, err := young.Read(ctx, []Entry{{Key: []byte("k")}})
			if err != nil {
				t.Fatal(err)
			}
			if string(values[0]) != "kept" {
				t.Fatalf("round %d: the new session sees %q", round, values[0])
			}
		}
		if err := <-ended; !errors.Is(err, ErrFenced) {
			t.Fatalf("the old session ended with %v", err)
		}
		if err := put(young, 1, 1, "new"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReleaseAtAnotherServer forks a session at a server that the session's own server hears nothing of, and releases
// the snapshot at the latter: what the fork sees must stay when the session goes on.
func TestReleaseAtAnotherServer(t *testing.T) {
	st := memory.New()
	first, second := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	parent := openForRace(t, first, "parent", nil)
	putKeys(t, parent, 1, 1, 0, 10)
	takeSnapshot(t, parent, "base", 1)
	fork := forkFrom(t, second, "base")
	if existed, err := first.Release(t.Context(), "base"); err != nil || !existed {
		t.Fatal(existed, err)
	}
	putKeys(t, parent, 2, 2, 0, 10)
	expectKeys(t, fork, 10, "1")
}

// forkFrom opens a session of another job than that of openForRace.
func forkFrom(t *testing.T, l *Lineage, snapshot string) *Session {
	t.Helper()
	token := "fork of " + snapshot
	result, err := l.Open(t.Context(), OpenRequest{Token: token, JobID: "fork", GroupCount: 1, Bases: []Base{{snapshot, Range{0, 0}}}})
	if err != nil {
		t.Fatal(err)
	}
	return reattach(t, l, result.SessionID, token)
}

// expectKeys demands a value of the first n rows of putKeys.
func expectKeys(t *testing.T, s *Session, n int, value string) {
	t.Helper()
	for i := range n {
		values, err := s.Read(t.Context(), []Entry{{Key: fmt.Appendf(nil, "key-%d", i)}})
		if err != nil || string(values[0]) != value {
			t.Fatalf("key %d: session %d sees %q, expected %q, error %v", i, s.ID(), values[0], value, err)
		}
	}
}

// TestExpiredForkLeavesItsSnapshots has a fork take a snapshot at its server when the parent's server is about to expire
// it: the parent's writes must keep what the snapshot reads through to.
func TestExpiredForkLeavesItsSnapshots(t *testing.T) {
	st := &hookedStore{Store: memory.New()}
	here, there := &machine{}, &machine{}
	first, second := here.start(t, st), there.start(t, st.Store)
	parent := openForRace(t, first, "parent", nil)
	putKeys(t, parent, 1, 1, 0, 10)
	takeSnapshot(t, parent, "base", 1)
	fork := forkFrom(t, second, "base")
	if _, err := first.Release(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	collectExpired(t, first)
	here.pass(2 * testLease)
	st.once(func() { takeSnapshot(t, fork, "newest", 1) })
	report, err := first.collect(t.Context(), false)
	if err != nil || report.ExpiredSessions != 1 {
		t.Fatalf("%d sessions were expired, error %v", report.ExpiredSessions, err)
	}
	putKeys(t, parent, 2, 2, 0, 10)
	expectKeys(t, forkFrom(t, second, "newest"), 10, "1")
}

// TestCloseOfAnOlderStreamEndsNothing closes a fork by a stream that was left for one at another server: the fork lives
// on, and the parent's writes must keep what it and its snapshots read through to.
func TestCloseOfAnOlderStreamEndsNothing(t *testing.T) {
	st := memory.New()
	first, second := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	parent := openForRace(t, first, "parent", nil)
	putKeys(t, parent, 1, 1, 0, 10)
	takeSnapshot(t, parent, "base", 1)
	older := forkFrom(t, first, "base")
	fork := reattach(t, second, older.ID(), "fork of base")
	if _, err := first.Release(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}
	takeSnapshot(t, fork, "newest", 1)
	if err := older.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	putKeys(t, parent, 2, 2, 0, 10)
	expectKeys(t, fork, 10, "1")
	if err := fork.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	putKeys(t, parent, 3, 3, 0, 10)
	expectKeys(t, forkFrom(t, second, "newest"), 10, "1")
}

// TestFencedForkLeavesItsSavepoint has a fork take a savepoint at its server when the parent's server is about to open
// a newer attempt of one of its key groups: the parent's writes must keep what the savepoint sees of the other one.
func TestFencedForkLeavesItsSavepoint(t *testing.T) {
	st := &hookedStore{Store: memory.New()}
	first, second := openLineage(t, st, Options{}), openLineage(t, st.Store, Options{})
	open := func(l *Lineage, job, token string, groups Range, bases ...Base) *Session {
		t.Helper()
		result, err := l.Open(t.Context(), OpenRequest{Token: token, JobID: job, GroupCount: 2, Range: groups, Bases: bases})
		if err != nil {
			t.Fatal(err)
		}
		return reattach(t, second, result.SessionID, token)
	}
	both, last := Range{0, 1}, Range{1, 1}
	parent := reattach(t, first, open(second, "job", "parent", both).ID(), "parent")
	putKeys(t, parent, 1, 1, 0, 10)
	takeSnapshot(t, parent, "base", 1)
	fork := open(second, "fork", "older", both, Base{"base", both})
	takeSnapshot(t, fork, "checkpoint", 1)
	st.once(func() {
		takeSnapshotOf(t, fork, SnapshotRequest{ID: "savepoint", Epoch: 2, CheckpointID: 2, Kind: SnapshotSavepoint})
	})
	open(first, "fork", "newer", last, Base{"checkpoint", last})
	for _, id := range []string{"base", "checkpoint"} {
		if _, err := first.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	putKeys(t, parent, 2, 2, 0, 10)
	expectKeys(t, open(second, "fork", "newest", both, Base{"savepoint", both}), 10, "1")
}

func openForRace(t *testing.T, l *Lineage, token string, bases []Base) *Session {
	t.Helper()
	ctx := context.Background()
	result, err := l.Open(ctx, OpenRequest{Token: token, JobID: "job", GroupCount: 1, Bases: bases})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Attach(ctx, result.SessionID, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RegisterState(ctx, "value", KindValue); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReadsWhileWritingAndFlattening reads a fork's rows, as reads that overtake do, while it is written to and made
// independent, and its parent's rows go away.
func TestReadsWhileWritingAndFlattening(t *testing.T) {
	st := memory.New()
	l := openLineage(t, st, Options{Lease: time.Hour})
	parent := openForRace(t, l, "parent", nil)
	const rows = 500
	putKeys(t, parent, 1, 1, 0, rows)
	takeSnapshot(t, parent, "base", 1)
	fork := openForRace(t, l, "fork", []Base{{"base", Range{0, 0}}})
	if err := parent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Release(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	var flattened atomic.Bool
	others.Go(func() {
		if err := flattenInSteps(ctx, fork); err != nil && ctx.Err() == nil {
			t.Errorf("flatten: %v", err)
		}
		flattened.Store(true)
	})
	others.Go(func() {
		for ctx.Err() == nil {
			if _, err := l.collect(ctx, false); err != nil && ctx.Err() == nil {
				t.Errorf("collect: %v", err)
			}
		}
	})
	others.Go(func() {
		for seq := uint64(1); ctx.Err() == nil; seq++ {
			value := fmt.Append(nil, seq)
			err := fork.Write(ctx, seq, 1, []Entry{{Op: OpPut, Key: []byte("a"), Value: value}, {Op: OpPut, Key: []byte("b"), Value: value}})
			if err != nil && ctx.Err() == nil {
				t.Errorf("write: %v", err)
			}
		}
	})
	older := 0
	for after := 0; after < 200 && !t.Failed(); after++ {
		if !flattened.Load() || older == 0 { // until the fork is independent and the writer has begun
			after = 0
		}
		key := rand.IntN(rows)
		values, err := fork.Read(ctx, []Entry{{Key: fmt.Appendf(nil, "key-%d", key)}, {Key: []byte("a")}})
		if err != nil {
			t.Fatal(err)
		}
		if string(values[0]) != "1" {
			t.Fatalf("key %d: the fork sees %q", key, values[0])
		}
		newer := 0
		if values[1] != nil {
			if newer, err = strconv.Atoi(string(values[1])); err != nil {
				t.Fatal(err)
			}
		}
		if newer < older {
			t.Fatalf("read %d after %d", newer, older)
		}
		older = newer
	}
	if older == 0 {
		t.Fatal("no write was seen")
	}
}

// TestSnapshotThatWasCommittedLate has the store try a snapshot's transaction again that was committed after all: later
// writes must keep what the snapshot sees.
func TestSnapshotThatWasCommittedLate(t *testing.T) {
	st := &lateCommits{Store: memory.New()}
	l := openLineage(t, st, Options{})
	s := openForRace(t, l, "t", nil)
	putKeys(t, s, 1, 1, 0, 10)
	st.on = true
	takeSnapshot(t, s, "late", 1)
	st.on = false
	putKeys(t, s, 2, 2, 0, 10)
	expectKeys(t, openForRace(t, l, "restored", []Base{{"late", Range{0, 0}}}), 10, "1")
}

// lockedStore has something happen before a transaction locks a name for the first time.
type lockedStore struct {
	store.Store
	name string
	then func() // nil when it has happened
}

type lockedTx struct {
	store.Tx
	s *lockedStore
}

func (s *lockedStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	return s.Store.Update(ctx, func(tx store.Tx) error { return fn(lockedTx{tx, s}) })
}

func (t lockedTx) LockMeta(key string) ([]byte, error) {
	if then := t.s.then; then != nil && key == t.s.name {
		t.s.then = nil
		then()
	}
	return t.Tx.LockMeta(key)
}

// TestOpenRepeatedElsewhere has a client repeat an open that takes long at another server, where it is done first: both
// are answered with the same session, which goes on.
func TestOpenRepeatedElsewhere(t *testing.T) {
	st := &lockedStore{Store: memory.New(), name: counterKey}
	slow, fast := openLineage(t, st, Options{}), openLineage(t, st.Store, Options{})
	before := openForRace(t, fast, "before", nil)
	takeSnapshot(t, before, "base", 1)
	request := OpenRequest{Token: "token", JobID: "job", GroupCount: 1, Bases: []Base{{"base", Range{0, 0}}}}
	var s *Session
	var opened OpenResult
	st.then = func() {
		var err error
		if opened, err = fast.Open(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		s = reattach(t, fast, opened.SessionID, "token")
	}
	late, err := slow.Open(t.Context(), request)
	if err != nil || late.SessionID != opened.SessionID {
		t.Errorf("the late open answers with session %d, error %v; the client has session %d", late.SessionID, err, opened.SessionID)
	}
	if err := s.Write(t.Context(), 1, 1, []Entry{{Op: OpPut, Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Errorf("the session that the client goes on with: %v", err)
	}
}

// TestCloseOfAnOlderStreamReleasesNothing closes a session by a stream that was left for a newer one, by which an export
// was taken.
func TestCloseOfAnOlderStreamReleasesNothing(t *testing.T) {
	l := openLineage(t, memory.New(), Options{})
	older := openForRace(t, l, "a", nil)
	newer := reattach(t, l, older.ID(), "a")
	takeSnapshotOf(t, newer, SnapshotRequest{ID: "export", Epoch: 1, Kind: SnapshotExport})
	must(t, older.Close(t.Context()))
	if _, err := l.Snapshot(t.Context(), "export"); err != nil {
		t.Errorf("the export of the session, which goes on: %v", err)
	}
	must(t, newer.Close(t.Context()))
	if _, err := l.Snapshot(t.Context(), "export"); !errors.Is(err, ErrSnapshotNotFound) {
		t.Errorf("the export of the session that has ended: %v", err)
	}
}
