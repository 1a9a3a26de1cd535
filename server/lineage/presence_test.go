package lineage

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// runServer has a server do what it does in the background until it is stopped; then it is gone with all it remembered.
func runServer(t *testing.T, l *Lineage) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// scanCounter counts the scans of rows.
type scanCounter struct {
	store.Store
	scans atomic.Int64
}

func (s *scanCounter) Scan(ctx context.Context, r store.Range) (store.Page, error) {
	s.scans.Add(1)
	return s.Store.Scan(ctx, r)
}

// serverRecords is how many servers the store knows of.
func serverRecords(t *testing.T, st store.Store) int {
	t.Helper()
	records, err := st.ScanMeta(t.Context(), serverPrefix)
	must(t, err)
	return len(records)
}

// checkGarbageLeft demands so many versions that nobody sees.
func checkGarbageLeft(t *testing.T, l *Lineage, versions uint64) {
	t.Helper()
	report, err := l.check(t.Context())
	must(t, err)
	if report.RemovedVersions != versions {
		t.Errorf("%d versions that nobody sees are left, expected %d", report.RemovedVersions, versions)
	}
}

// TestDeadServersRowsAreSwept has a server die with rows that it was to sweep, while two others run on, at one of which
// the sessions go on: these rows are swept, by one of the others.
func TestDeadServersRowsAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &scanCounter{Store: memory.New()}
		living := openLineage(t, st, Options{})
		defer runServer(t, living)()
		defer runServer(t, openLineage(t, st, Options{}))()
		time.Sleep(30 * time.Second) // all that there is to sweep after a start is swept
		dying := newGarbageSpaces(t, st)
		stop := runServer(t, dying)
		synctest.Wait()
		stop()
		for id, a := range dying.live {
			reattach(t, living, id, a.record.Token)
		}
		checkGarbageLeft(t, living, garbageSpaces*garbageRows)
		before := st.scans.Load()
		time.Sleep(5 * time.Minute)
		swept := st.scans.Load() - before
		checkGarbageLeft(t, living, 0)
		if swept != garbageSpaces {
			t.Errorf("%d scans of %d row spaces: one server is to look at each once", swept, garbageSpaces)
		}
		if n := serverRecords(t, st); n != 2 {
			t.Errorf("the store knows %d servers, 2 are running", n)
		}
	})
}

// TestRestartLooksOnce starts a server after the only one has died: what its first pass has looked at, it does not look
// at again when it finds out that the other one is gone.
func TestRestartLooksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &scanCounter{Store: memory.New()}
		dying := newGarbageSpaces(t, st)
		stop := runServer(t, dying)
		synctest.Wait()
		stop()
		started := openLineage(t, st, Options{})
		for id, a := range dying.live {
			reattach(t, started, id, a.record.Token)
		}
		before := st.scans.Load()
		defer runServer(t, started)()
		time.Sleep(5 * time.Minute)
		if scans := st.scans.Load() - before; scans != garbageSpaces {
			t.Errorf("%d scans of %d row spaces", scans, garbageSpaces)
		}
		checkGarbageLeft(t, started, 0)
		if n := serverRecords(t, st); n != 1 {
			t.Errorf("the store knows %d servers, 1 is running", n)
		}
	})
}

// TestOnlyServerIsNotFollowed: a store that nobody else can open knows no servers.
func TestOnlyServerIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		defer runServer(t, openLineage(t, st, Options{Exclusive: true}))()
		time.Sleep(5 * time.Minute)
		if n := serverRecords(t, st); n != 0 {
			t.Errorf("the store knows %d servers", n)
		}
	})
}

// TestHeldUpServerComesBack takes a server for dead that was only held up: it is known again, and when it dies in fact,
// that is noticed too.
func TestHeldUpServerComesBack(t *testing.T) {
	st := memory.New()
	m := &machine{}
	living, heldUp := newPresence(m.start(t, st)), newPresence(m.start(t, st))
	step := func(p *presence) {
		t.Helper()
		must(t, p.step(t.Context()))
	}
	for range 2 {
		step(heldUp)
		step(living)
		if n := serverRecords(t, st); n != 2 {
			t.Fatalf("the store knows %d servers, 2 are running", n)
		}
		collectExpired(t, living.l)
		m.pass(testLease + time.Second)
		step(living)
		if n := serverRecords(t, st); n != 1 {
			t.Fatalf("the store knows %d servers after the lease of one", n)
		}
		if _, whole := living.l.garbage.take(0); !whole {
			t.Error("the rows of the other server are not looked at")
		}
	}
}
