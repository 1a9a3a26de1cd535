package lineage

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// lateStore makes changes visible at once and, while it is held, durable only later. A transaction without changes has
// nothing to wait for.
type lateStore struct {
	store.Store
	held chan struct{} // nil while it is not held
}

func (s *lateStore) hold() (release func()) {
	held := make(chan struct{})
	s.held = held
	return func() { s.held = nil; close(held) }
}

func (s *lateStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	late := &lateTx{}
	commit, err := s.Store.Update(ctx, func(tx store.Tx) error {
		late.Tx, late.wrote = tx, false
		return fn(late)
	})
	if err != nil || s.held == nil || !late.wrote {
		return commit, err
	}
	return lateCommit{commit, s.held}, nil
}

type lateTx struct {
	store.Tx
	wrote bool
}

func (t *lateTx) PutMeta(key string, value []byte) error {
	t.wrote = true
	return t.Tx.PutMeta(key, value)
}
func (t *lateTx) DeleteMeta(key string) error      { t.wrote = true; return t.Tx.DeleteMeta(key) }
func (t *lateTx) Put(rows []store.Row) error       { t.wrote = true; return t.Tx.Put(rows) }
func (t *lateTx) Delete(keys []store.RowKey) error { t.wrote = true; return t.Tx.Delete(keys) }

type lateCommit struct {
	store.Commit
	held chan struct{}
}

func (c lateCommit) Wait(ctx context.Context) error {
	select {
	case <-c.held:
		return c.Commit.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// isDurable says whether a commit is durable within a moment.
func isDurable(t *testing.T, c store.Commit) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := c.Wait(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil
}

func (s *Session) awaitDurable(t *testing.T, seq uint64) {
	t.Helper()
	for {
		durable, news, err := s.Durable()
		if err != nil {
			t.Fatal(err)
		}
		if durable >= seq {
			return
		}
		select {
		case <-news:
		case <-time.After(10 * time.Second):
			t.Fatalf("durable up to %d, expected %d", durable, seq)
		}
	}
}

// TestRepeatedSnapshotIsNotDurableBeforeItsOriginal repeats a request, as a client does that has lost its connection,
// while the snapshot is not on disk yet.
func TestRepeatedSnapshotIsNotDurableBeforeItsOriginal(t *testing.T) {
	st := &lateStore{Store: memory.New()}
	l := openLineage(t, st, Options{})
	s := openForRace(t, l, "a", nil)
	release := st.hold()
	putKeys(t, s, 1, 1, 0, 1)
	request := SnapshotRequest{ID: "1", Epoch: 1, CheckpointID: 1, Kind: SnapshotCheckpoint, LastSeq: 1}
	if _, _, err := s.Snapshot(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	_, repeated, err := s.Snapshot(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if isDurable(t, repeated) {
		t.Error("the repeated request was answered before the snapshot was durable")
	}
	release()
	if !isDurable(t, repeated) {
		t.Error("the repeated request is not answered")
	}
}

// TestOtherServerKnowsOnlyWhatIsDurable attaches at another server while what the first one wrote is not durable.
func TestOtherServerKnowsOnlyWhatIsDurable(t *testing.T) {
	st := &lateStore{Store: memory.New()}
	first := openForRace(t, openLineage(t, st, Options{}), "a", nil)
	putKeys(t, first, 1, 1, 0, 1)
	other := openLineage(t, st, Options{})
	release := st.hold()
	putKeys(t, first, 2, 1, 1, 2)
	second := reattach(t, other, first.ID(), "a")
	if durable, _, err := second.Durable(); err != nil || durable >= 2 {
		t.Errorf("durable up to %d, error %v; write 2 is not", durable, err)
	}
	release()
	second.awaitDurable(t, 2)
}

// applyUnheard applies a write of which the session's server does not hear.
func applyUnheard(t *testing.T, st store.Store, s *Session, seq uint64) {
	t.Helper()
	if _, err := st.Update(t.Context(), func(tx store.Tx) error {
		progress, err := lockLane(tx, s.ID())
		if err != nil {
			return err
		}
		progress.Applied, progress.Epoch = seq, 1
		return writeLane(tx, s.ID(), progress)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUnheardWriteBecomesDurable: the server tries a write again that was applied, or the client attaches again.
func TestUnheardWriteBecomesDurable(t *testing.T) {
	st := &lateStore{Store: memory.New()}
	l := openLineage(t, st, Options{})
	s := openForRace(t, l, "a", nil)
	release := st.hold()
	applyUnheard(t, st, s, 1)
	putKeys(t, s, 1, 1, 0, 1)
	if durable, _, err := s.Durable(); err != nil || durable >= 1 {
		t.Errorf("durable up to %d, error %v; write 1 is not", durable, err)
	}
	release()
	s.awaitDurable(t, 1)
	applyUnheard(t, st, s, 2)
	again := reattach(t, l, s.ID(), "a")
	if again.AppliedSeq() != 2 {
		t.Errorf("applied up to %d", again.AppliedSeq())
	}
	again.awaitDurable(t, 2)
}

// TestSnapshotNeedsTheWritesBeforeIt refuses a snapshot of a store that came back without the newest writes.
func TestSnapshotNeedsTheWritesBeforeIt(t *testing.T) {
	s := openForRace(t, openLineage(t, memory.New(), Options{}), "a", nil)
	putKeys(t, s, 1, 1, 0, 1)
	request := SnapshotRequest{ID: "1", Epoch: 1, CheckpointID: 1, Kind: SnapshotCheckpoint, LastSeq: 2}
	if _, _, err := s.Snapshot(t.Context(), request); !errors.Is(err, ErrSessionNotFound) {
		t.Errorf("a snapshot without write 2: %v", err)
	}
	request.LastSeq = 1
	if _, _, err := s.Snapshot(t.Context(), request); err != nil {
		t.Error(err)
	}
}

// losingStore loses what is committed while it is told to, and says so only when durability is asked for.
type losingStore struct {
	store.Store
	loses bool
}

type lostCommit struct{ store.Commit }

var errLost = errors.New("the commit is lost")

func (lostCommit) Wait(context.Context) error { return errLost }

func (s *losingStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	commit, err := s.Store.Update(ctx, fn)
	if s.loses && err == nil {
		return lostCommit{commit}, nil
	}
	return commit, err
}

// TestLostCutMakesTheSessionUnsure has the store lose the transaction that makes a fork independent of its parent: the
// fork must take no snapshot as if it were.
func TestLostCutMakesTheSessionUnsure(t *testing.T) {
	st := &losingStore{Store: memory.New()}
	l := openLineage(t, st, Options{})
	parent := openForRace(t, l, "parent", nil)
	putKeys(t, parent, 1, 1, 0, 100)
	takeSnapshot(t, parent, "base", 1)
	fork := forkFrom(t, l, "base")
	st.loses = true
	f := newFlattening(fork.attached)
	var err error
	for err == nil && !f.done {
		_, err = f.step(t.Context())
	}
	st.loses = false
	if !errors.Is(err, errLost) {
		t.Fatalf("flattening ended with %v", err)
	}
	request := SnapshotRequest{ID: "after", Epoch: 1, Kind: SnapshotCheckpoint}
	if _, _, err := fork.Snapshot(t.Context(), request); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a snapshot after the lost cut: %v", err)
	}
	takeSnapshotOf(t, reattach(t, l, fork.ID(), "fork of base"), request)
}
