package lineage

import (
	"fmt"
	"sync"
	"testing"

	"github.com/flinkndb/flinkndb/server/store/memory"
)

// liveHere is how many sessions a server keeps in memory, and what their filters take.
func liveHere(l *Lineage) (sessions int, filterBytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.live), l.filters.used.Load()
}

func wantNoneLive(t *testing.T, l *Lineage) {
	t.Helper()
	if n, bytes := liveHere(l); n > 0 || bytes > 0 {
		t.Errorf("%d sessions that have ended stay in memory, with %d bytes of filters", n, bytes)
	}
}

// TestFencedSessionsLeaveMemory has tasks killed again and again, each fenced by its next attempt: their filters leave
// room for those of new sessions.
func TestFencedSessionsLeaveMemory(t *testing.T) {
	l := openLineage(t, memory.New(), Options{MaxFilterBytes: 200_000})
	for i := range 20 {
		killed := openForRace(t, l, fmt.Sprint("killed", i), nil)
		putKeys(t, killed, 1, 1, 0, 10)
		snapshot := fmt.Sprint("snapshot", i)
		takeSnapshot(t, killed, snapshot, 1)
		killed.Detach()
		next := openForRace(t, l, fmt.Sprint("next", i), []Base{{snapshot, Range{0, 0}}})
		if err := next.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		next.Detach()
		collectExpired(t, l)
	}
	wantNoneLive(t, l)
	s := openForRace(t, l, "new", nil)
	putKeys(t, s, 1, 1, 0, 10)
	if s.newRows == nil {
		t.Error("a new session has no filter")
	}
}

// TestFencedSessionLeavesMemoryWithItsStream fences a session whose stream goes on for a while.
func TestFencedSessionLeavesMemoryWithItsStream(t *testing.T) {
	l := openLineage(t, memory.New(), Options{})
	old := openForRace(t, l, "old", nil)
	putKeys(t, old, 1, 1, 0, 10)
	takeSnapshot(t, old, "s", 1)
	next := openForRace(t, l, "new", []Base{{"s", Range{0, 0}}})
	collectExpired(t, l)
	if n, _ := liveHere(l); n != 2 {
		t.Errorf("%d sessions are in memory while both have streams", n)
	}
	old.Detach()
	if n, bytes := liveHere(l); n != 1 || bytes > 0 {
		t.Errorf("%d sessions are in memory, with %d bytes of filters", n, bytes)
	}
	if err := next.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	next.Detach()
	wantNoneLive(t, l)
}

// TestSessionEndedElsewhereLeavesMemory moves a session to another server, which ends it.
func TestSessionEndedElsewhereLeavesMemory(t *testing.T) {
	st := memory.New()
	first, second := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	s := openForRace(t, first, "a", nil)
	putKeys(t, s, 1, 1, 0, 10)
	s.Detach()
	moved := reattach(t, second, s.ID(), "a")
	collectExpired(t, first)
	if n, _ := liveHere(first); n != 1 {
		t.Errorf("%d sessions are in memory while theirs lives", n)
	}
	if err := moved.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	collectExpired(t, first)
	wantNoneLive(t, first)
}

// TestSessionStaysInMemoryWhileItAttaches has a sweep come at the one moment when a session that another server has opened
// is held here and the catalog does not show it.
func TestSessionStaysInMemoryWhileItAttaches(t *testing.T) {
	st := memory.New()
	here, there := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	s := openInGroup(t, there, "a")
	a := here.hold(s.record)
	here.dropEnded()
	if here.live[s.ID()] != a {
		t.Error("the session was dropped")
	}
}

// TestAttachingSessionStaysInMemory attaches to sessions that another server has just opened, so that this one's catalog
// does not know them yet, while sweeps drop those that have ended. Whoever attaches again finds what the first stream
// left, its filter too.
func TestAttachingSessionStaysInMemory(t *testing.T) {
	st := memory.New()
	here, there := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	stop := make(chan struct{})
	var sweeps sync.WaitGroup
	repeat := func(fn func()) {
		sweeps.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					fn()
				}
			}
		})
	}
	repeat(here.dropEnded)
	repeat(func() {
		if _, err := here.collect(t.Context(), false); err != nil {
			t.Error(err)
		}
	})
	var clients sync.WaitGroup
	for client := range 4 {
		clients.Go(func() {
			for i := range 25 {
				if err := attachTwice(t, here, there, fmt.Sprint(client, "-", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	sweeps.Wait()
	collectExpired(t, here)
	wantNoneLive(t, here)
}

// attachTwice opens a session at one server, writes through two streams at another, and closes it.
func attachTwice(t *testing.T, here, there *Lineage, token string) error {
	ctx := t.Context()
	opened, err := there.Open(ctx, OpenRequest{Token: token, JobID: token, GroupCount: 1})
	if err != nil {
		return err
	}
	var before *attached
	for seq := uint64(1); seq <= 2; seq++ {
		s, err := here.Attach(ctx, opened.SessionID, token)
		if err != nil {
			return err
		}
		if before != nil && s.attached != before {
			return fmt.Errorf("session %s was dropped while it lived", token)
		}
		before = s.attached
		if _, err := s.RegisterState(ctx, "value", KindValue); err != nil {
			return err
		}
		if err := s.Write(ctx, seq, 1, []Entry{{Op: OpPut, Key: fmt.Append(nil, seq), Value: []byte("v")}}); err != nil {
			return err
		}
		if s.newRows == nil {
			return fmt.Errorf("session %s lost its filter with stream %d", token, seq)
		}
		if _, _, err := s.Durable(); err != nil {
			return fmt.Errorf("session %s, stream %d: %w", token, seq, err)
		}
		if seq == 2 {
			err = s.Close(ctx)
		}
		s.Detach()
		if err != nil {
			return err
		}
	}
	return nil
}
