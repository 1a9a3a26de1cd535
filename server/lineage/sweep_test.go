package lineage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
	"github.com/flinkndb/flinkndb/server/store/pebble"
)

const (
	garbageSpaces = 5
	garbageRows   = 8 // one piece
)

// newGarbageSpaces makes row spaces, each with rows whose older versions nobody needs. The server remembers them.
func newGarbageSpaces(t *testing.T, st store.Store) *Lineage {
	t.Helper()
	l := openLineage(t, st, Options{})
	collectExpired(t, l) // the first pass looks at everything
	for i := range garbageSpaces {
		name := fmt.Sprint(i)
		s := openForRace(t, l, name, nil)
		putKeys(t, s, 1, 1, 0, garbageRows)
		takeSnapshot(t, s, name, 1)
		putKeys(t, s, 2, 2, 0, garbageRows)
		if _, err := l.Release(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// expectSwept demands how many versions the next pass over what is remembered removes, and that then none is left.
func expectSwept(t *testing.T, l *Lineage, versions uint64) {
	t.Helper()
	report, err := l.collect(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	if report.RemovedVersions != versions {
		t.Errorf("%d versions were removed, expected %d", report.RemovedVersions, versions)
	}
	if report, err = l.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report.RemovedVersions != 0 {
		t.Errorf("%d versions that nobody sees are left", report.RemovedVersions)
	}
}

// TestSweepGoesOnAfterAFailure fails the sweep of one row space: the others are swept, and that one by the next pass.
func TestSweepGoesOnAfterAFailure(t *testing.T) {
	st := &hookedStore{Store: memory.New()}
	l := newGarbageSpaces(t, st)
	st.before = func() error { st.before = nil; return store.ErrUnavailable }
	var report GarbageReport
	if err := l.sweep(t.Context(), false, 0, &report); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	if expected := uint64((garbageSpaces - 1) * garbageRows); report.RemovedVersions != expected {
		t.Errorf("%d versions were removed beside the failure, expected %d", report.RemovedVersions, expected)
	}
	expectSwept(t, l, garbageRows)
}

// TestInterruptedSweepForgetsNothing ends the context of a pass after its first row space, as the end of a call's time
// does: what was not swept is still remembered.
func TestInterruptedSweepForgetsNothing(t *testing.T) {
	for name, everything := range map[string]bool{"remembered": false, "everything": true} {
		t.Run(name, func(t *testing.T) {
			st := &hookedStore{Store: memory.New()}
			l := newGarbageSpaces(t, st)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			st.once(func() { st.once(cancel) })
			var report GarbageReport
			if err := l.sweep(ctx, everything, 0, &report); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if report.RemovedVersions != garbageRows {
				t.Errorf("%d versions were removed before the interruption, expected %d", report.RemovedVersions, garbageRows)
			}
			expectSwept(t, l, (garbageSpaces-1)*garbageRows)
		})
	}
}

// weighingStore notes how large the rows of one read, or of one transaction, are together at most.
type weighingStore struct {
	store.Store
	most int
}

type weighingTx struct {
	store.Tx
	read int
}

func (s *weighingStore) weigh(values [][]byte) int {
	n := 0
	for _, v := range values {
		n += len(v)
	}
	s.most = max(s.most, n)
	return n
}

func (s *weighingStore) Get(ctx context.Context, keys []store.RowKey) ([][]byte, error) {
	values, err := s.Store.Get(ctx, keys)
	s.weigh(values)
	return values, err
}

func (s *weighingStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	return s.Store.Update(ctx, func(tx store.Tx) error {
		weighing := &weighingTx{Tx: tx}
		defer func() { s.most = max(s.most, weighing.read) }()
		return fn(weighing)
	})
}

func (t *weighingTx) Get(keys []store.RowKey) ([][]byte, error) {
	values, err := t.Tx.Get(keys)
	for _, v := range values {
		t.read += len(v)
	}
	return values, err
}

// TestLargeRowsAreReadInPieces sweeps, checks and counts rows that together are much larger than what may be in memory.
// The embedded store fills a page of keys whatever the sizes of the rows.
func TestLargeRowsAreReadInPieces(t *testing.T) {
	embedded, err := pebble.Open(t.TempDir(), pebble.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { must(t, embedded.Close()) }()
	st := &weighingStore{Store: embedded}
	l := openLineage(t, st, Options{})
	collectExpired(t, l) // the first pass looks at everything
	s := openForRace(t, l, "a", nil)
	const rows = 64
	var keys []store.RowKey
	value := make([]byte, 4*pieceBytes/rows)
	for i := range rows {
		key := fmt.Appendf(nil, "key-%d", i)
		must(t, s.Write(t.Context(), uint64(i+1), 1, []Entry{{Op: OpPut, Key: key, Value: value}}))
		keys = append(keys, store.RowKey{Space: s.parts[0].Layers[0].Space, Key: key})
	}
	collect := func(everything bool) (uint64, error) {
		report, err := l.collect(t.Context(), everything)
		return report.ScannedRows, err
	}
	for name, walk := range map[string]func() (uint64, error){
		"sweep of everything": func() (uint64, error) { return collect(true) },
		"sweep of what is remembered": func() (uint64, error) {
			l.garbage.add(keys)
			return collect(false)
		},
		"check": func() (uint64, error) {
			report, err := l.check(t.Context())
			return report.ScannedRows, err
		},
		"count": func() (uint64, error) {
			spaces, err := l.Spaces(t.Context(), true)
			return spaces[0].Rows, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			st.most = 0
			n, err := walk()
			if err != nil || n != rows {
				t.Fatalf("%d of %d rows, error %v", n, rows, err)
			}
			if st.most > pieceBytes {
				t.Errorf("%d bytes were read at once, allowed are %d", st.most, pieceBytes)
			}
		})
	}
}

// TestGarbageIsBoundedForAllSpaces remembers more rows than allowed, of a large row space and several small ones: only the
// large one is to be looked at as a whole.
func TestGarbageIsBoundedForAllSpaces(t *testing.T) {
	const most, small = 100, 9
	g := newGarbage(most)
	remember := func(space uint64, rows int) {
		for i := range rows {
			g.add([]store.RowKey{{Space: space, Key: fmt.Append(nil, i)}})
		}
	}
	remember(1, 60)
	for space := range uint64(small) {
		remember(2+space, 10)
		remember(2+space, 10) // known already
	}
	remembered := 0
	for space, s := range g.spaces {
		if s.all != (space == 1) {
			t.Errorf("row space %d is looked at as a whole: %v", space, s.all)
		}
		remembered += len(s.rows)
	}
	if remembered != 10*small || g.weight != remembered {
		t.Errorf("%d rows are remembered and %d counted, expected %d", remembered, g.weight, 10*small)
	}
	g.sweepAll(2)
	remember(99, most)
	if taken, _ := g.take(0); !taken[99].all || !taken[2].all || taken[3].all || g.weight != 0 {
		t.Errorf("taken %v, counted %d", taken, g.weight)
	}
	remember(1, most)
	if taken, _ := g.take(0); taken[1].all || len(taken[1].rows) != most {
		t.Errorf("after all was taken, %d of %d rows are remembered", len(taken[1].rows), most)
	}
}

// TestLongKeysCountForMore remembers rows whose keys take far more memory than what is remembered of other rows.
func TestLongKeysCountForMore(t *testing.T) {
	const most = 100
	long := make([]store.RowKey, 10)
	for i := range long {
		long[i] = store.RowKey{Space: 1, Key: append(make([]byte, 3000), byte(i))}
	}
	g := newGarbage(most)
	g.add(long)
	if taken, _ := g.take(0); !taken[1].all {
		t.Errorf("%d long keys are remembered", len(taken[1].rows))
	}
	u := &unsettled{budget: &rowBudget{limit: most}}
	u.add(1, long[:1])
	u.add(2, long)
	if _, complete := u.take(); complete || u.budget.used.Load() != 0 {
		t.Errorf("long keys of a lost epoch: all remembered %v, counted afterwards %d", complete, u.budget.used.Load())
	}
}

// TestCheckCountsWhatACollectionRemoves checks before a collection: snapshots that are overdue, a session that has
// expired, and the rows that only these see.
func TestCheckCountsWhatACollectionRemoves(t *testing.T) {
	m := &machine{}
	l := m.start(t, memory.New())
	first := openForRace(t, l, "first", nil)
	putKeys(t, first, 1, 1, 0, garbageRows)
	takeSnapshot(t, first, "kept", 1)
	putKeys(t, first, 2, 2, 0, garbageRows)
	takeSnapshot(t, first, "abandoned", 2)
	exporting := openForRace(t, l, "exporting", []Base{{"kept", Range{0, 0}}})
	putKeys(t, exporting, 1, 1, garbageRows, 2*garbageRows)
	takeSnapshotOf(t, exporting, SnapshotRequest{ID: "export", Epoch: 1, Kind: SnapshotExport})
	exporting.Detach()
	collectExpired(t, l) // its lease counts from here
	m.pass(time.Hour)

	checked, err := l.Collect(t.Context(), true)
	must(t, err)
	if checked.ExpiredSessions != 1 || checked.ReleasedSnapshots != 2 || checked.RemovedRows != garbageRows || checked.RemovedVersions != 2*garbageRows {
		t.Errorf("the check found %+v", checked)
	}
	collected, err := l.Collect(t.Context(), false)
	must(t, err)
	if checked != collected {
		t.Errorf("the check found %+v, the collection after it %+v", checked, collected)
	}
}
