package lineage

import (
	"errors"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/server/store/memory"
)

// TestSavepointOutlivesFailover takes a checkpoint, a savepoint, and a checkpoint that never completes; the job goes
// back to the first. Flink never says whether a savepoint completed unless the job stops with it.
func TestSavepointOutlivesFailover(t *testing.T) {
	ctx := t.Context()
	m := &machine{}
	l := m.start(t, memory.New())
	first := openForRace(t, l, "first", nil)
	putKeys(t, first, 1, 1, 0, 1)
	takeSnapshotOf(t, first, SnapshotRequest{ID: "checkpoint", Epoch: 1, CheckpointID: 1, Kind: SnapshotCheckpoint})
	if err := first.Notify(ctx, 1, true); err != nil {
		t.Fatal(err)
	}
	putKeys(t, first, 2, 2, 1, 2)
	takeSnapshotOf(t, first, SnapshotRequest{ID: "savepoint", Epoch: 2, CheckpointID: 2, Kind: SnapshotSavepoint})
	takeSnapshotOf(t, first, SnapshotRequest{ID: "incomplete", Epoch: 3, CheckpointID: 3, Kind: SnapshotCheckpoint})
	openForRace(t, l, "second", []Base{{"checkpoint", Range{0, 0}}})
	m.pass(2 * time.Hour)
	collectExpired(t, l)
	if info, err := l.Snapshot(ctx, "savepoint"); err != nil || !info.Abandoned.IsZero() {
		t.Errorf("the savepoint: abandoned %v, error %v", info.Abandoned, err)
	}
	if _, err := l.Snapshot(ctx, "incomplete"); !errors.Is(err, ErrSnapshotNotFound) {
		t.Errorf("the checkpoint that never completed: %v", err)
	}
}

// TestStopWithSavepointConfirmsIt: that Flink tells.
func TestStopWithSavepointConfirmsIt(t *testing.T) {
	ctx := t.Context()
	l := openLineage(t, memory.New(), Options{})
	s := openForRace(t, l, "a", nil)
	takeSnapshotOf(t, s, SnapshotRequest{ID: "savepoint", Epoch: 1, CheckpointID: 1, Kind: SnapshotSavepoint})
	if err := s.Notify(ctx, 1, true); err != nil {
		t.Fatal(err)
	}
	if info, err := l.Snapshot(ctx, "savepoint"); err != nil || !info.Confirmed {
		t.Errorf("confirmed: %v, error %v", info.Confirmed, err)
	}
}

// TestFencedSessionReadsNoMore: who took its place does not keep the versions that only it saw.
func TestFencedSessionReadsNoMore(t *testing.T) {
	l := openLineage(t, memory.New(), Options{})
	first := openForRace(t, l, "first", nil)
	putKeys(t, first, 1, 1, 0, 1)
	takeSnapshotOf(t, first, SnapshotRequest{ID: "checkpoint", Epoch: 1, CheckpointID: 1, Kind: SnapshotCheckpoint})
	putKeys(t, first, 2, 2, 0, 1)
	second := openForRace(t, l, "second", []Base{{"checkpoint", Range{0, 0}}})
	putKeys(t, second, 1, 1, 0, 1)
	key := Entry{Key: []byte("key-0")}
	if got, err := first.Read(t.Context(), []Entry{key}); !errors.Is(err, ErrFenced) {
		t.Errorf("the fenced session reads %q, error %v", got, err)
	}
	if _, _, err := first.Scan(t.Context(), ScanRequest{}); !errors.Is(err, ErrFenced) {
		t.Errorf("the fenced session scans, error %v", err)
	}
	if _, err := first.Count(t.Context(), 0, Range{0, 0}); !errors.Is(err, ErrFenced) {
		t.Errorf("the fenced session counts, error %v", err)
	}
	if _, err := second.Read(t.Context(), []Entry{key}); err != nil {
		t.Error(err)
	}
}

// TestRestoredSnapshotIsNotReleasedAsAbandoned has another server restore from an abandoned snapshot, at the moment when
// the collection here has found it overdue.
func TestRestoredSnapshotIsNotReleasedAsAbandoned(t *testing.T) {
	st := &hookedStore{Store: memory.New()}
	m := &machine{}
	l, other := m.start(t, st), m.start(t, st.Store)
	first := openForRace(t, l, "first", nil)
	takeSnapshot(t, first, "kept", 1)
	takeSnapshot(t, first, "abandoned", 2)
	openForRace(t, l, "second", []Base{{"kept", Range{0, 0}}})
	m.pass(time.Hour)
	st.once(func() { openForRace(t, other, "third", []Base{{"abandoned", Range{0, 0}}}) })
	report, err := l.collect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if st.before != nil {
		t.Fatal("the collection found nothing to release")
	}
	if info, err := l.Snapshot(t.Context(), "abandoned"); err != nil || !info.Confirmed {
		t.Errorf("the snapshot that a session was restored from: confirmed %v, error %v", info.Confirmed, err)
	}
	if report.ReleasedSnapshots > 0 {
		t.Errorf("reported as released: %d", report.ReleasedSnapshots)
	}
}

// TestAbortedCheckpointIsKeptForItsRetention tells of two aborted checkpoints. Another server restores from one of them,
// which this one has not heard of: the JobManager did not know that the high-availability store had taken it.
func TestAbortedCheckpointIsKeptForItsRetention(t *testing.T) {
	for name, abortedFirst := range map[string]bool{"told before the restore": true, "told after it": false} {
		t.Run(name, func(t *testing.T) {
			st := memory.New()
			m := &machine{}
			l, other := m.start(t, st), m.start(t, st)
			first := openForRace(t, l, "first", nil)
			takeSnapshotOf(t, first, SnapshotRequest{ID: "restored", Epoch: 1, CheckpointID: 1, Kind: SnapshotCheckpoint})
			takeSnapshotOf(t, first, SnapshotRequest{ID: "aborted", Epoch: 2, CheckpointID: 2, Kind: SnapshotCheckpoint})
			restore := func() { openForRace(t, other, "second", []Base{{"restored", Range{0, 0}}}) }
			if !abortedFirst {
				restore()
			}
			for checkpoint := range int64(2) {
				if err := first.Notify(t.Context(), checkpoint+1, false); err != nil {
					t.Fatal(err)
				}
			}
			if abortedFirst {
				restore()
			}
			m.pass(2 * time.Hour)
			collectExpired(t, l)
			if info, err := l.Snapshot(t.Context(), "restored"); err != nil || !info.Abandoned.IsZero() {
				t.Errorf("the snapshot that a session was restored from: abandoned %v, error %v", info.Abandoned, err)
			}
			if _, err := l.Snapshot(t.Context(), "aborted"); !errors.Is(err, ErrSnapshotNotFound) {
				t.Errorf("the other one: %v", err)
			}
		})
	}
}
