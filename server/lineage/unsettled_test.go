package lineage

import (
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// expectNoGarbage runs passes over what is remembered, after which nothing may be left that nobody sees. What ends in one is
// looked at in the next.
func expectNoGarbage(t *testing.T, l *Lineage) {
	t.Helper()
	for range 2 {
		_, err := l.collect(t.Context(), false)
		must(t, err)
	}
	report, err := l.check(t.Context())
	must(t, err)
	if report.RemovedRows+report.RemovedVersions > 0 {
		t.Errorf("left after a pass: %+v", report)
	}
}

// TestRowsOfALostEpochAreSwept has a session end in different ways with rows that no completed checkpoint has: each has
// one version, and nobody will see it.
func TestRowsOfALostEpochAreSwept(t *testing.T) {
	base := []Base{{"checkpoint", Range{0, 0}}}
	for name, end := range map[string]func(*testing.T, *Lineage, *machine, *Session){
		"fenced": func(t *testing.T, l *Lineage, _ *machine, s *Session) {
			openForRace(t, l, "next", base)
			s.Detach()
		},
		"fenced at another server": func(t *testing.T, l *Lineage, m *machine, s *Session) {
			openForRace(t, m.start(t, l.store), "next", base)
			s.Detach()
		},
		"expired": func(t *testing.T, l *Lineage, m *machine, s *Session) {
			s.Detach()
			_, err := l.collect(t.Context(), false)
			must(t, err)
			m.pass(2 * testLease)
		},
		"closed": func(t *testing.T, _ *Lineage, _ *machine, s *Session) {
			must(t, s.Close(t.Context()))
			s.Detach()
		},
	} {
		for remembered, most := range map[string]int{"": 0, ", too many to remember": garbageRows - 1} {
			t.Run(name+remembered, func(t *testing.T) {
				m := &machine{}
				l, err := New(t.Context(), memory.New(), Options{
					Log: zerolog.Nop(), Lease: testLease, MaxGarbageKeys: most,
					Elapsed: func() time.Duration { return time.Duration(m.elapsed.Load()) },
				})
				must(t, err)
				collectExpired(t, l) // the first pass looks at everything
				s := openForRace(t, l, "first", nil)
				putKeys(t, s, 1, 1, 0, garbageRows)
				takeSnapshotOf(t, s, SnapshotRequest{ID: "checkpoint", Epoch: 1, CheckpointID: 1, Kind: SnapshotCheckpoint})
				putKeys(t, s, 2, 2, garbageRows, 2*garbageRows)
				must(t, s.Notify(t.Context(), 1, true))
				end(t, l, m, s)
				expectNoGarbage(t, l)
				expectKeys(t, openForRace(t, l, "restored", base), garbageRows, "1")
			})
		}
	}
}

// TestRowsOfADeadServersSessionsAreSwept has a session end that has made rows at a server that died before: nobody knows
// which.
func TestRowsOfADeadServersSessionsAreSwept(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Lineage, *machine, *Session){
		"fenced where it went on": func(t *testing.T, l *Lineage, _ *machine, s *Session) {
			moved := reattach(t, l, s.ID(), "first")
			expectNoGarbage(t, l)
			openForRace(t, l, "next", []Base{{"checkpoint", Range{0, 0}}})
			moved.Detach()
		},
		"expired": func(t *testing.T, l *Lineage, m *machine, _ *Session) {
			expectNoGarbage(t, l)
			m.pass(2 * testLease)
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := memory.New()
			m := &machine{}
			l, dead := m.start(t, st), m.start(t, st)
			s := openForRace(t, dead, "first", nil)
			putKeys(t, s, 1, 1, 0, garbageRows)
			takeSnapshot(t, s, "checkpoint", 1)
			putKeys(t, s, 2, 2, garbageRows, 2*garbageRows)
			end(t, l, m, s)
			expectNoGarbage(t, l)
		})
	}
}

// TestConfirmedRowsAreNotRemembered: what is remembered of a session that runs on is bounded by what it makes between two
// checkpoints.
func TestConfirmedRowsAreNotRemembered(t *testing.T) {
	l := openLineage(t, memory.New(), Options{})
	s := openForRace(t, l, "a", nil)
	for epoch := range uint64(5) {
		at := int(epoch) * garbageRows
		putKeys(t, s, 2*epoch+1, epoch+1, at, at+garbageRows)
		putKeys(t, s, 2*epoch+2, epoch+1, at, at+garbageRows) // rows that the epoch has made already
		if n := l.unsettled.used.Load(); n != garbageRows {
			t.Errorf("%d rows are remembered in epoch %d, expected %d", n, epoch+1, garbageRows)
		}
		id := string(rune('a' + epoch))
		takeSnapshotOf(t, s, SnapshotRequest{ID: id, Epoch: epoch + 1, CheckpointID: int64(epoch), Kind: SnapshotCheckpoint})
		must(t, s.Notify(t.Context(), int64(epoch), true))
		if n := l.unsettled.used.Load(); n != 0 {
			t.Errorf("%d rows are remembered after checkpoint %d", n, epoch)
		}
	}
}

// TestRowsOfAnAbandonedSnapshotAreSwept goes back behind a checkpoint that has rows of its own: they go when it is
// released.
func TestRowsOfAnAbandonedSnapshotAreSwept(t *testing.T) {
	m := &machine{}
	l := m.start(t, memory.New())
	collectExpired(t, l)
	first := openForRace(t, l, "first", nil)
	putKeys(t, first, 1, 1, 0, garbageRows)
	takeSnapshot(t, first, "kept", 1)
	putKeys(t, first, 2, 2, garbageRows, 2*garbageRows)
	takeSnapshot(t, first, "abandoned", 2)
	openForRace(t, l, "second", []Base{{"kept", Range{0, 0}}})
	first.Detach()
	expectNoGarbage(t, l)
	m.pass(time.Hour)
	expectNoGarbage(t, l)
}

// TestRowsAfterASavepointAreSwept ends a job that has gone on after a savepoint. Its row space stays for the savepoint's
// sake, and nobody sees what came after, whether the session ends first or its last checkpoint.
func TestRowsAfterASavepointAreSwept(t *testing.T) {
	release := func(t *testing.T, l *Lineage, _ *Session) {
		_, err := l.Release(t.Context(), "checkpoint")
		must(t, err)
	}
	end := func(t *testing.T, _ *Lineage, s *Session) { must(t, s.Close(t.Context())) }
	for name, steps := range map[string][]func(*testing.T, *Lineage, *Session){
		"session first":    {end, release},
		"checkpoint first": {release, end},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLineage(t, memory.New(), Options{})
			collectExpired(t, l) // the first pass looks at everything
			s := openForRace(t, l, "a", nil)
			putKeys(t, s, 1, 1, 0, garbageRows)
			takeSnapshotOf(t, s, SnapshotRequest{ID: "savepoint", Epoch: 1, CheckpointID: 1, Kind: SnapshotSavepoint})
			putKeys(t, s, 2, 2, garbageRows, 2*garbageRows)
			takeSnapshotOf(t, s, SnapshotRequest{ID: "checkpoint", Epoch: 2, CheckpointID: 2, Kind: SnapshotCheckpoint})
			must(t, s.Notify(t.Context(), 2, true))
			for _, step := range steps {
				expectNoGarbage(t, l)
				step(t, l, s)
			}
			expectNoGarbage(t, l)
			expectKeys(t, openForRace(t, l, "restored", []Base{{"savepoint", Range{0, 0}}}), garbageRows, "1")
		})
	}
}

// TestContinued asks whether what a snapshot shows goes on without it.
func TestContinued(t *testing.T) {
	at := func(first, last uint16, layers ...layer) []part { return []part{{Range{first, last}, layers}} }
	shown := layer{7, History{{3, 9}, {5, 2}}}
	for name, c := range map[string]struct {
		sessions  []part
		snapshots []part
		want      bool
	}{
		"nobody":               {nil, nil, false},
		"its session":          {at(0, 9, layer{7, History{{3, 9}, {5, 1 << 60}}}), nil, true},
		"a later snapshot":     {nil, at(0, 9, layer{7, History{{3, 9}, {5, 3}}}), true},
		"an earlier snapshot":  {nil, at(0, 9, layer{7, History{{3, 9}, {5, 1}}}), false},
		"one that went back":   {at(0, 9, layer{7, History{{3, 9}, {6, 1 << 60}}}), nil, false},
		"another row space":    {at(0, 9, layer{8, History{{3, 9}, {5, 3}}}), nil, false},
		"a fork":               {at(0, 9, layer{8, History{{6, 1 << 60}}}, shown), nil, true},
		"some key groups":      {at(0, 5, shown), at(7, 9, shown), false},
		"two for the whole":    {at(0, 5, shown), at(6, 9, shown), true},
		"more than the groups": {at(0, 20, shown), nil, true},
	} {
		catalog := newCatalog()
		catalog.sessions[1] = &sessionRecord{ID: 1, Parts: c.sessions}
		catalog.snapshots["s"] = &snapshotRecord{Parts: c.snapshots}
		if got := catalog.continued(endedView{shown, Range{0, 9}, 0}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRowsOfAnUnheardWriteAreSwept loses the answer to a write, which the client sends again: it is not applied twice, and
// what it left is swept all the same.
func TestRowsOfAnUnheardWriteAreSwept(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Lineage, *Session){
		"older versions": func(t *testing.T, l *Lineage, _ *Session) {
			_, err := l.Release(t.Context(), "checkpoint")
			must(t, err)
		},
		"rows": func(t *testing.T, l *Lineage, s *Session) {
			openForRace(t, l, "next", []Base{{"checkpoint", Range{0, 0}}})
			s.Detach()
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := &unheardCommits{Store: memory.New()}
			l := openLineage(t, st, Options{})
			collectExpired(t, l) // the first pass looks at everything
			s := openForRace(t, l, "first", nil)
			putKeys(t, s, 1, 1, 0, garbageRows)
			takeSnapshot(t, s, "checkpoint", 1)
			st.on = true
			err := s.Write(t.Context(), 2, 2, []Entry{{Op: OpPut, Key: []byte("key-0"), Value: []byte("2")}, {Op: OpPut, Key: []byte("new"), Value: []byte("2")}})
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("error %v", err)
			}
			st.on = false
			again := reattach(t, l, s.ID(), "first")
			s.Detach()
			if again.AppliedSeq() != 2 {
				t.Fatalf("write %d was applied", again.AppliedSeq())
			}
			end(t, l, again)
			expectNoGarbage(t, l)
		})
	}
}
