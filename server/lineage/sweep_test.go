package lineage

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

const garbageSpaces, garbageRows = 5, 10

// newGarbageSpaces makes row spaces, each with rows whose older versions nobody needs. The server remembers them.
func newGarbageSpaces(t *testing.T, st store.Store) *Lineage {
	t.Helper()
	l := openLineage(t, st, Options{})
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
	if err := l.sweep(t.Context(), false, &report); !errors.Is(err, store.ErrUnavailable) {
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
			if err := l.sweep(ctx, everything, &report); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if report.RemovedVersions != garbageRows {
				t.Errorf("%d versions were removed before the interruption, expected %d", report.RemovedVersions, garbageRows)
			}
			expectSwept(t, l, (garbageSpaces-1)*garbageRows)
		})
	}
}
