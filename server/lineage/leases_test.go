package lineage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

const testLease = time.Minute

// machine has clocks for a server: a time of day that jumps, and a monotonic clock that does not.
type machine struct {
	ahead   atomic.Int64
	elapsed atomic.Int64
}

func (m *machine) jump(by time.Duration) { m.ahead.Store(int64(by)) }
func (m *machine) pass(d time.Duration)  { m.elapsed.Add(int64(d)) }

func (m *machine) start(t *testing.T, st store.Store) *Lineage {
	t.Helper()
	l, err := New(t.Context(), st, Options{
		Log: zerolog.Nop(), Lease: testLease, AbandonedRetention: time.Hour,
		Now:     func() time.Time { return time.Unix(1e9, m.ahead.Load()+m.elapsed.Load()) },
		Elapsed: func() time.Duration { return time.Duration(m.elapsed.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// collect runs a collection and returns how many sessions it expired.
func collectExpired(t *testing.T, l *Lineage) uint64 {
	t.Helper()
	report, err := l.Collect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return report.ExpiredSessions
}

// TestClockJumpEndsNoSession sets the time of day forward and back: sessions with and without a stream stay, and end
// when their lease has really passed.
func TestClockJumpEndsNoSession(t *testing.T) {
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 1000 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			m := &machine{}
			l := m.start(t, memory.New())
			s := openForRace(t, l, "a", nil)
			collectExpired(t, l)
			m.jump(jump)
			for range 10 { // a stream keeps a session, whatever the client sends or does not
				m.pass(testLease)
				if n := collectExpired(t, l); n > 0 {
					t.Fatal("a session with a stream was expired")
				}
			}
			s.Detach()
			m.pass(testLease - time.Second)
			m.jump(2 * jump)
			if n := collectExpired(t, l); n > 0 {
				t.Fatal("a session was expired before its lease had passed")
			}
			m.jump(-jump)
			m.pass(2 * time.Second)
			if n := collectExpired(t, l); n != 1 {
				t.Fatalf("%d sessions were expired after their lease", n)
			}
		})
	}
}

// TestClocksOfServersDiffer has a server whose clock is hours off sweep a store whose session is at another server, while
// that one writes and renews. The session ends only when nobody renews it any more, and then for good.
func TestClocksOfServersDiffer(t *testing.T) {
	ctx := t.Context()
	for _, ahead := range []time.Duration{5 * time.Hour, -5 * time.Hour} {
		st := memory.New()
		right, wrong := &machine{}, &machine{}
		wrong.jump(ahead)
		s := openForRace(t, right.start(t, st), "a", nil)
		sweeper := wrong.start(t, st)
		var expired atomic.Uint64
		sweepCtx, stop := context.WithCancel(ctx)
		var sweeping sync.WaitGroup
		sweeping.Go(func() {
			for sweepCtx.Err() == nil {
				report, err := sweeper.Collect(ctx, false)
				if err != nil {
					t.Error(err)
					return
				}
				expired.Add(report.ExpiredSessions)
			}
		})
		for seq := uint64(1); seq <= 300; seq++ {
			right.pass(testLease / 3)
			wrong.pass(testLease / 3)
			if err := s.Renew(ctx); err != nil {
				t.Fatalf("renewal %d: %v", seq, err)
			}
			if err := s.Write(ctx, seq, 1, []Entry{{Op: OpPut, Key: []byte("k"), Value: fmt.Append(nil, seq)}}); err != nil {
				t.Fatalf("write %d: %v", seq, err)
			}
		}
		stop()
		sweeping.Wait()
		if expired.Load() > 0 {
			t.Fatal("a session that renews was expired")
		}
		collectExpired(t, sweeper)
		wrong.pass(testLease + time.Second)
		if n := collectExpired(t, sweeper); n != 1 {
			t.Fatalf("%d sessions were expired after their lease", n)
		}
		if err := s.Write(ctx, 301, 1, []Entry{{Op: OpPut, Key: []byte("k"), Value: []byte("late")}}); !errors.Is(err, ErrSessionNotFound) {
			t.Fatalf("a write after the session was expired: %v", err)
		}
	}
}

// TestClockJumpKeepsAbandonedSnapshots demands that only time which has passed counts for their retention.
func TestClockJumpKeepsAbandonedSnapshots(t *testing.T) {
	ctx := t.Context()
	m := &machine{}
	l := m.start(t, memory.New())
	first := openForRace(t, l, "first", nil)
	for epoch, id := range []string{"kept", "abandoned"} {
		_, commit, err := first.Snapshot(ctx, SnapshotRequest{ID: id, Epoch: uint64(epoch + 1), CheckpointID: int64(epoch), Kind: SnapshotCheckpoint})
		if err != nil {
			t.Fatal(err)
		}
		if err := commit.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	m.jump(3 * time.Hour)
	openForRace(t, l, "second", []Base{{"kept", Range{0, 0}}})
	for _, jump := range []time.Duration{-3 * time.Hour, 30 * time.Hour, 0} {
		m.jump(jump)
		m.pass(10 * time.Minute)
		collectExpired(t, l)
		if _, err := l.Snapshot(ctx, "abandoned"); err != nil {
			t.Fatalf("after a jump by %v: %v", jump, err)
		}
	}
	m.jump(-100 * time.Hour)
	m.pass(time.Hour)
	collectExpired(t, l)
	if _, err := l.Snapshot(ctx, "abandoned"); !errors.Is(err, ErrSnapshotNotFound) {
		t.Fatalf("after its retention: %v", err)
	}
}

// TestReaderNoticesALostPin has the pin of a reader released under it: it must say so, and not return what is left.
// The server of the reader itself never takes it for one that was left behind.
func TestReaderNoticesALostPin(t *testing.T) {
	ctx := t.Context()
	st := memory.New()
	m, far := &machine{}, &machine{}
	l := m.start(t, st)
	s := openForRace(t, l, "a", nil)
	if err := s.Write(ctx, 1, 1, []Entry{{Op: OpPut, Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	_, commit, err := s.Snapshot(ctx, SnapshotRequest{ID: "s", Epoch: 1, Kind: SnapshotSavepoint})
	if err != nil {
		t.Fatal(err)
	}
	if err := commit.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	r, err := l.OpenReader(ctx, ReadRequest{SnapshotID: "s"})
	if err != nil {
		t.Fatal(err)
	}
	m.pass(10 * pinRetention)
	collectExpired(t, l)
	if rows, err := r.Next(ctx); err != nil || len(rows) != 1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	if r, err = l.OpenReader(ctx, ReadRequest{SnapshotID: "s"}); err != nil {
		t.Fatal(err)
	}
	far.jump(20 * pinRetention)
	collectExpired(t, far.start(t, st))
	if rows, err := r.Next(ctx); !errors.Is(err, ErrSnapshotNotFound) {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
}
