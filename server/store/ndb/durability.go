package ndb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// atCommit: what is committed is as durable as it will be.
type atCommit struct{}

// Wait implements store.Commit.
func (atCommit) Wait(context.Context) error { return nil }

// prober proves that commits are on the data nodes' disks. NDB writes global checkpoints: consistent
// cuts through all transactions, numbered; number g+2 does not begin before g is on disk. So, for
// all commits that happened before a probe committed in global checkpoint p, a later probe that
// commits in p+2 or above is the proof. Probes run only while somebody waits.
//
// After a crash of the whole cluster the numbers go on from what was on disk, which would make that
// proof wrong. So the probe that follows a commit also looks whether the commit's mark is there (its
// slot is not used again before), and each later probe whether the one before it is still there. If
// so, a crash between them has lost nothing that matters; if not, the waiters learn that their
// commits may be lost.
type prober struct {
	store *Store
	wake  chan struct{}
	mu    sync.Mutex
	// unbound are the tickets of commits that no probe has followed yet.
	unbound []*ticket
}

// ticket is the durability of one commit.
type ticket struct {
	since time.Time
	mark  mark
	done  chan struct{}
	err   error // set before done is closed
}

// boundTickets are tickets whose commits happened in global checkpoint gci or before.
type boundTickets struct {
	gci     uint64
	tickets []*ticket
}

// probeInterval is the time between probes: short against the two seconds of a global checkpoint.
const probeInterval = 100 * time.Millisecond

// errCommitsLost is what waiters learn when the whole cluster went down before their commits were on disk.
var errCommitsLost = errors.New("the NDB cluster went down as a whole and came back without the last commits: restore the jobs from their last completed checkpoints")

// committed registers a commit that has just happened and takes over its mark.
func (p *prober) committed(m mark) store.Commit {
	t := &ticket{since: time.Now(), mark: m, done: make(chan struct{})}
	p.mu.Lock()
	p.unbound = append(p.unbound, t)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return t
}

// Wait implements store.Commit.
func (t *ticket) Wait(ctx context.Context) error {
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the disk: %w", ctx.Err())
	}
}

func (t *ticket) resolve(err error) {
	t.err = err
	close(t.done)
}

func (p *prober) takeUnbound() []*ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.unbound
	p.unbound = nil
	return taken
}

// run probes until the store is closed.
func (p *prober) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-p.store.closing; cancel() }()
	var waiting []boundTickets
	var trail probeTrail
	for {
		if len(waiting) == 0 {
			trail = probeTrail{} // nobody waits for what earlier probes followed
			select {
			case <-p.wake:
			case <-ctx.Done():
				p.giveUp(waiting)
				return
			}
		}
		fresh := p.takeUnbound()
		if len(fresh)+len(waiting) > 0 {
			waiting = p.round(ctx, &trail, waiting, fresh)
		}
		if !sleep(ctx, p.store.closing, probeInterval) {
			p.giveUp(waiting)
			return
		}
	}
}

// round sends one probe, resolves what it proves, and returns what is still waiting.
func (p *prober) round(ctx context.Context, trail *probeTrail, waiting []boundTickets, fresh []*ticket) []boundTickets {
	gci, err := p.store.probe(ctx, trail, fresh)
	switch {
	case errors.Is(err, errCommitsLost):
		p.store.log.Error().Err(err).Msg("commits are lost")
		*trail = probeTrail{}
		p.giveMarksBack(fresh)
		resolveAll(append(waiting, boundTickets{tickets: fresh}), err)
		return nil
	case err != nil: // the store is being closed, or nothing answers: the waiters have their own deadlines
		p.mu.Lock()
		p.unbound = append(fresh, p.unbound...)
		p.mu.Unlock()
		if ctx.Err() == nil {
			p.store.log.Warn().Err(err).Msg("cannot find out what is on disk yet")
			p.rewake()
		}
		return waiting
	}
	n := 0
	for n < len(waiting) && waiting[n].gci+2 <= gci {
		for _, t := range waiting[n].tickets {
			p.store.metrics.durable.Observe(time.Since(t.since).Seconds())
			t.resolve(nil)
		}
		n++
	}
	waiting = waiting[n:]
	if len(fresh) > 0 {
		p.giveMarksBack(fresh)
		waiting = append(waiting, boundTickets{gci, fresh})
	}
	return waiting
}

func (p *prober) giveMarksBack(tickets []*ticket) {
	for _, t := range tickets {
		p.store.marks.giveBack(t.mark)
	}
}

func (p *prober) rewake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *prober) giveUp(waiting []boundTickets) {
	resolveAll(append(waiting, boundTickets{tickets: p.takeUnbound()}), store.ErrClosed)
}

func resolveAll(waiting []boundTickets, err error) {
	for _, b := range waiting {
		for _, t := range b.tickets {
			t.resolve(err)
		}
	}
}

// probeTrail is what the next probe must find: the sequence number of the last one, or of one whose
// COMMIT got no answer.
type probeTrail struct {
	started bool
	last    uint64
	tried   uint64
}

// probeSlot is the prober's slot in server_commit.
const probeSlot = 0

// probe commits a small change and returns the number of the global checkpoint that holds it. It
// fails with errCommitsLost if the trail breaks off or if one of the tickets' marks is not there.
func (s *Store) probe(ctx context.Context, trail *probeTrail, tickets []*ticket) (gci uint64, err error) {
	err = s.withRetry(ctx, "probe", func(ctx context.Context, h *host) error {
		return s.withSession(ctx, h.aux, func(c *session) error {
			gci, err = c.probe(s.writer, trail, tickets)
			return err
		})
	})
	return gci, err
}

func (c *session) probe(writer uint64, trail *probeTrail, tickets []*ticket) (uint64, error) {
	found, err := c.startProbe(writer)
	if err != nil {
		c.discard()
		return 0, err
	}
	marksThere, err := c.marksThere(writer, tickets)
	if err != nil {
		c.discard()
		return 0, err
	}
	if !marksThere || trail.started && found != trail.last && found != trail.tried {
		c.rollback()
		return 0, errCommitsLost
	}
	next := max(found, trail.tried) + 1
	if _, err := c.exec(mark{probeSlot, next}.write(writer)); err != nil {
		c.discard()
		return 0, err
	}
	if found == trail.tried {
		trail.last = trail.tried
	}
	trail.tried = next
	if _, err := c.exec("COMMIT"); err != nil {
		c.discard()
		return 0, err
	}
	trail.started, trail.last = true, next
	return c.lastGCI()
}

// startProbe opens a transaction and reads the probe's row, which it locks.
func (c *session) startProbe(writer uint64) (found uint64, err error) {
	if _, err := c.exec("START TRANSACTION"); err != nil {
		return 0, err
	}
	err = c.query(fmt.Sprintf("SELECT seq FROM server_commit WHERE writer=%d AND slot=%d FOR UPDATE", writer, probeSlot),
		func(columns []driver.Value) error {
			found, err = asUint(columns[0])
			return err
		})
	return found, err
}

// marksThere says whether the marks of all tickets are in the table.
func (c *session) marksThere(writer uint64, tickets []*ticket) (bool, error) {
	if len(tickets) == 0 {
		return true, nil
	}
	there := map[uint64]uint64{}
	err := c.query(fmt.Sprintf("SELECT slot,seq FROM server_commit WHERE writer=%d", writer), func(columns []driver.Value) error {
		slot, err1 := asUint(columns[0])
		seq, err2 := asUint(columns[1])
		there[slot] = seq
		return errors.Join(err1, err2)
	})
	if err != nil {
		return false, err
	}
	for _, t := range tickets {
		if there[uint64(t.mark.slot)] != t.mark.seq {
			return false, nil
		}
	}
	return true, nil
}

// lastGCI returns the number of the global checkpoint of this connection's last commit: the upper
// half of its epoch.
func (c *session) lastGCI() (gci uint64, err error) {
	err = c.query("SHOW SESSION STATUS LIKE 'Ndb_last_commit_epoch_session'", func(columns []driver.Value) error {
		value, err := asBytes(columns[1])
		if err != nil {
			return err
		}
		epoch, err := asUint(value)
		if err != nil {
			return err
		}
		gci = epoch >> 32
		return nil
	})
	if err == nil && gci == 0 {
		err = errors.New("the MySQL server does not tell Ndb_last_commit_epoch_session: durability=disk needs a server of MySQL NDB Cluster 8 or newer")
	}
	return gci, err
}
