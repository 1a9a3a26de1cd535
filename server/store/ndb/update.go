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

const (
	// commitTimeout bounds a COMMIT, which is not interrupted when the caller's context ends: its
	// outcome would be unknown.
	commitTimeout = 30 * time.Second
	// outcomeTimeout bounds the search for the outcome of a COMMIT whose answer was lost.
	outcomeTimeout = 45 * time.Second
	// rollbackTimeout bounds a ROLLBACK; the connection is closed if it takes longer.
	rollbackTimeout = 5 * time.Second
)

// errUnknownOutcome says that neither the answer to a COMMIT nor, later, its effect could be had.
var errUnknownOutcome = errors.New("it is not known whether the transaction was committed")

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	began := time.Now()
	var commit store.Commit
	err := s.withRetry(ctx, "update", func(ctx context.Context, h *host) error {
		return s.withSession(ctx, h.updates, func(c *session) (err error) {
			commit, err = s.transact(c, h, fn)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	s.metrics.updated(began)
	return commit, nil
}

// transact runs fn in one transaction on one connection of host.updates.
func (s *Store) transact(c *session, h *host, fn func(store.Tx) error) (store.Commit, error) {
	ended := false
	defer func() {
		if !ended { // fn panicked
			c.discard()
		}
	}()
	t := newTx(s, c, h)
	fnErr := fn(t)
	t.done = true
	if fnErr == nil && t.err == nil {
		t.fail(t.removePlaceholders())
	}
	if t.err != nil || fnErr != nil {
		ended = true
		c.rollback()
		return nil, t.cause(fnErr)
	}
	commit, err := s.commit(c, t.wrote)
	ended = true
	return commit, err
}

// cause is the error of a transaction that must be rolled back: the store's own if there is one,
// whatever fn made of it, else fn's.
func (t *tx) cause(fnErr error) error {
	switch {
	case t.err == nil:
		return &callerError{fnErr}
	case errors.Is(fnErr, t.err):
		return fnErr
	}
	return t.err
}

func (c *session) rollback() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), rollbackTimeout)
	defer cancel()
	c.ctx = ctx
	if _, err := c.exec("ROLLBACK"); err != nil {
		c.discard()
	}
}

// commit ends a transaction. One that wrote something leaves a mark, by which its outcome can be
// found out should the answer to COMMIT be lost. With durability=disk each leaves one, since also one
// that only read must be able to tell whether what it saw is on disk.
func (s *Store) commit(c *session, wrote bool) (store.Commit, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), commitTimeout)
	defer cancel()
	c.ctx = ctx
	if !wrote && s.prober == nil {
		if _, err := c.exec("COMMIT"); err != nil {
			c.discard()
			return nil, err
		}
		return atCommit{}, nil
	}
	m := s.marks.take()
	err := s.commitMarked(c, m)
	if errors.Is(err, errUnknownOutcome) {
		return nil, err // and the mark's slot is not used again: the transaction may still hold it
	}
	if err != nil || s.prober == nil {
		s.marks.giveBack(m)
		return atCommit{}, err
	}
	return s.prober.committed(m), nil // it gives the mark back
}

func (s *Store) commitMarked(c *session, m mark) error {
	_, err := c.exec(m.write(s.writer) + "; COMMIT")
	if err == nil {
		return nil
	}
	c.discard()
	done, findErr := s.outcome(c.ctx, m)
	switch {
	case findErr != nil:
		s.metrics.outcomes.WithLabelValues("unknown").Inc()
		return fmt.Errorf("%w: %w (looking for it: %v)", errUnknownOutcome, err, findErr)
	case done:
		s.metrics.outcomes.WithLabelValues("done").Inc()
		return nil
	}
	s.metrics.outcomes.WithLabelValues("undone").Inc()
	return err
}

// outcome says whether the transaction that left mark was committed, and settles it: what was not committed never will
// be. It waits for the row lock of the mark, so that a transaction that is still in progress somewhere is decided when it
// answers.
func (s *Store) outcome(ctx context.Context, m mark) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTimeout)
	defer cancel()
	verdict := s.marks.verdict(m)
	var last error
	for attempt := 0; ; attempt++ {
		h := s.hosts.pick()
		var seq uint64
		last = s.withSession(ctx, h.aux, func(c *session) error {
			var err error
			seq, err = c.settle(s.writer, m, verdict)
			return err
		})
		if last == nil {
			return seq == m.seq, nil
		}
		c := classify(last)
		if c == hostDown {
			h.markDown()
		}
		if c == permanent || !sleep(ctx, s.closing, pause(c, attempt)) {
			return false, last
		}
	}
}

// settle puts the verdict where the mark should be, unless the mark is there, and returns the sequence number that is
// there then. A COMMIT that is still on its way, in the network or in a MySQL server that hangs, comes with the mark, and
// fails at the verdict: the transaction is repeated meanwhile, and must not happen twice.
func (c *session) settle(writer uint64, m, verdict mark) (seq uint64, err error) {
	if _, err := c.exec("START TRANSACTION"); err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			c.rollback()
		}
	}()
	if _, err := c.exec(verdict.statement(writer, fmt.Sprintf("IF(seq=%d,seq,%d)", m.seq, verdict.seq))); err != nil {
		return 0, err
	}
	err = c.query(fmt.Sprintf("SELECT seq FROM server_commit WHERE writer=%d AND slot=%d FOR UPDATE", writer, m.slot),
		func(columns []driver.Value) error {
			seq, err = asUint(columns[0])
			return err
		})
	if err != nil {
		return 0, err
	}
	_, err = c.exec("COMMIT")
	return seq, err
}

// mark is what a transaction writes into server_commit: seq is new in each transaction, slot is
// used by one transaction at a time, so that marks take few rows.
type mark struct {
	slot uint32
	seq  uint64
}

// write leaves the mark. Above a verdict on it the statement fails: seq cannot be NULL.
func (m mark) write(writer uint64) string {
	return m.statement(writer, fmt.Sprintf("IF(seq<%d,%d,NULL)", m.seq, m.seq))
}

// statement writes the mark's row; seq is what becomes of the sequence number of one that is there.
func (m mark) statement(writer uint64, seq string) string {
	now := time.Now().Unix()
	return fmt.Sprintf("INSERT INTO server_commit (writer,slot,seq,at) VALUES (%d,%d,%d,%d) ON DUPLICATE KEY UPDATE seq=%s,at=%d",
		writer, m.slot, m.seq, now, seq, now)
}

// marks hands out marks. Slot 0 is the durability probe's.
type marks struct {
	mu   sync.Mutex
	free []uint32
	last uint32
	seq  uint64
}

func (ms *marks) take() mark {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.seq++
	if n := len(ms.free); n > 0 {
		slot := ms.free[n-1]
		ms.free = ms.free[:n-1]
		return mark{slot, ms.seq}
	}
	ms.last++
	return mark{ms.last, ms.seq}
}

// verdict is what settles that the transaction of a mark was not committed: newer than it, older than the next of its slot.
func (ms *marks) verdict(m mark) mark {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.seq++
	return mark{m.slot, ms.seq}
}

// giveBack frees the slot.
func (ms *marks) giveBack(m mark) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.free = append(ms.free, m.slot)
}
