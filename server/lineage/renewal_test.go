package lineage

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// renewalStore counts the renewals that are written, and knows the transactions that write rows.
type renewalStore struct {
	store.Store
	renewals atomic.Int64
	within   func() // runs in the next transaction that writes rows
	refuse   int    // how many of these are to be tried again
	between  func() // runs before that
}

type renewalTx struct {
	store.Tx
	s    *renewalStore
	rows bool
}

var errTryAgain = errors.New("try again")

func (s *renewalStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	for {
		commit, err := s.Store.Update(ctx, func(tx store.Tx) error { return s.run(&renewalTx{Tx: tx, s: s}, fn) })
		if !errors.Is(err, errTryAgain) {
			return commit, err
		}
		s.between()
	}
}

func (s *renewalStore) run(tx *renewalTx, fn func(store.Tx) error) error {
	if err := fn(tx); err != nil || !tx.rows {
		return err
	}
	if within := s.within; within != nil {
		s.within = nil
		within()
	}
	if s.refuse > 0 {
		s.refuse--
		return errTryAgain
	}
	return nil
}

func (t *renewalTx) PutMeta(key string, value []byte) error {
	if strings.HasPrefix(key, sessionPrefix) {
		t.s.renewals.Add(1)
	}
	return t.Tx.PutMeta(key, value)
}

func (t *renewalTx) Put(rows []store.Row) error {
	t.rows = true
	return t.Tx.Put(rows)
}

// renewDue does at once what a server does in the background.
func renewDue(t *testing.T, l *Lineage) {
	t.Helper()
	for _, a := range l.dueRenewals() {
		if err := a.renewHere(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestConnectedSessionOutlivesItsLease sends no heartbeat for many leases, as behind a frame that waits for
// the budget: the session's own server renews, so that another one never expires the session, and writes no more than needed.
func TestConnectedSessionOutlivesItsLease(t *testing.T) {
	st := &renewalStore{Store: memory.New()}
	here, there := &machine{}, &machine{}
	own, other := here.start(t, st), there.start(t, st)
	s := openForRace(t, own, "a", nil)
	collectExpired(t, other)
	st.renewals.Store(0)
	const leases, steps = 5, 60
	for range leases * steps {
		here.pass(testLease / steps)
		there.pass(testLease / steps)
		renewDue(t, own)
		if collectExpired(t, other) > 0 {
			t.Fatal("another server expired a session that has a stream")
		}
	}
	if n := st.renewals.Load(); n > 3*leases {
		t.Errorf("%d renewals were written in %d leases", n, leases)
	}
	if err := s.Renew(t.Context()); err != nil {
		t.Errorf("the heartbeat that waited: %v", err)
	}
	s.Detach()
	here.pass(2 * testLease)
	there.pass(2 * testLease)
	renewDue(t, own)
	if n := collectExpired(t, other); n != 1 {
		t.Errorf("%d sessions were expired after their stream had ended", n)
	}
}

// TestHeartbeatsSpareRenewals has heartbeats come in time: the server writes nothing by itself.
func TestHeartbeatsSpareRenewals(t *testing.T) {
	m := &machine{}
	l := m.start(t, memory.New())
	s := openForRace(t, l, "a", nil)
	for range 30 {
		m.pass(testLease/3 - time.Second)
		if due := l.dueRenewals(); len(due) > 0 {
			t.Fatal("a lease is due before a third of it has passed")
		}
		m.pass(time.Second)
		if err := s.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRenewalBetweenTriesOfAWrite has the store refuse a frame again and again for longer than the lease, as one that
// tries again does: the lease is renewed between two tries, while the frame's call is under way.
func TestRenewalBetweenTriesOfAWrite(t *testing.T) {
	st := &renewalStore{Store: memory.New()}
	here, there := &machine{}, &machine{}
	own, other := here.start(t, st), there.start(t, st)
	s := openForRace(t, own, "a", nil)
	collectExpired(t, other)
	st.refuse = 10
	st.between = func() {
		here.pass(testLease / 2)
		there.pass(testLease / 2)
		renewDue(t, own)
		if collectExpired(t, other) > 0 {
			t.Error("another server expired a session that has a stream")
		}
	}
	putKeys(t, s, 1, 1, 0, 10)
}

// TestLongWriteRenews has one transaction, which keeps everybody else from the lane, take longer than the lease. The
// server's renewals wait for it without end; another server that wanted to expire the session finds it renewed.
func TestLongWriteRenews(t *testing.T) {
	st := &renewalStore{Store: memory.New()}
	here, there := &machine{}, &machine{}
	own, other := here.start(t, st), there.start(t, st)
	s := openForRace(t, own, "a", nil)
	collectExpired(t, other)
	ctx := t.Context()
	expired := make(chan bool, 1)
	st.within = func() {
		there.pass(2 * testLease)
		asked := make(chan struct{})
		go func() { // the lane is held until the frame is committed
			close(asked)
			ended, err := other.expire(ctx, s.ID())
			if err != nil {
				t.Error(err)
			}
			expired <- ended
		}()
		<-asked
	}
	here.pass(2 * testLease) // as if the transaction had begun long ago
	putKeys(t, s, 1, 1, 0, 10)
	if <-expired {
		t.Error("another server expired a session that was writing")
	}
	putKeys(t, s, 2, 1, 0, 10)
}

// TestRenewalWaitsForNoLaneForEver holds a lane: the renewal gives up, and those of other sessions go on meanwhile.
func TestRenewalWaitsForNoLaneForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &renewalStore{Store: memory.New()}
		l, err := New(t.Context(), st, Options{Log: zerolog.Nop(), Lease: testLease})
		if err != nil {
			t.Fatal(err)
		}
		held, free := openForRace(t, l, "held", nil), openInGroup(t, l, "free")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); l.Run(ctx) }()
		release := make(chan struct{})
		go func() {
			if _, err := st.Update(ctx, func(tx store.Tx) error {
				_, err := tx.LockMeta(laneKey(held.ID()))
				<-release
				return err
			}); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(10*testLease + testLease/6) // by the clock of the bubble: nobody waits
		if held.renewalDue() == free.renewalDue() {
			t.Errorf("due: the held session %v, the other %v", held.renewalDue(), free.renewalDue())
		}
		close(release)
		time.Sleep(testLease / 6)
		if held.renewalDue() {
			t.Error("the lease is not renewed after the lane was free")
		}
		cancel()
		<-done
	})
}

// openInGroup opens a session of a job of its own and attaches to it.
func openInGroup(t *testing.T, l *Lineage, token string) *Session {
	t.Helper()
	r, err := l.Open(t.Context(), OpenRequest{Token: token, JobID: token, GroupCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	return reattach(t, l, r.SessionID, token)
}

// TestFencedSessionIsNotRenewed fences a session at another server: its own one writes no renewal, asks no more, and
// lets the session read no more.
func TestFencedSessionIsNotRenewed(t *testing.T) {
	st := &renewalStore{Store: memory.New()}
	m := &machine{}
	own, other := m.start(t, st), m.start(t, st)
	s := openForRace(t, own, "old", nil)
	takeSnapshot(t, s, "s", 1)
	openForRace(t, other, "new", []Base{{"s", Range{0, 0}}})
	st.renewals.Store(0)
	m.pass(testLease)
	due := own.dueRenewals()
	if len(due) != 1 {
		t.Fatalf("%d leases are due", len(due))
	}
	if err := due[0].renewHere(t.Context()); !errors.Is(err, ErrFenced) {
		t.Errorf("the renewal: %v", err)
	}
	if len(own.dueRenewals()) > 0 || st.renewals.Load() > 0 {
		t.Errorf("%d leases are due, %d renewals were written", len(own.dueRenewals()), st.renewals.Load())
	}
	if _, err := s.Read(t.Context(), []Entry{{Key: []byte("k")}}); !errors.Is(err, ErrFenced) {
		t.Errorf("a read of the fenced session: %v", err)
	}
}
