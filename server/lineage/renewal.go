package lineage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// renewalTick is how often the server looks, in its own memory, for leases to renew.
const renewalTick = time.Second

// renewal is how far this server is with renewing a session's lease. Heartbeats take their turn behind the other
// frames of a stream, and one of these may take longer than a lease (it waits for the budget or for the store, or
// clears a large map). So a server also renews the leases of the sessions that have a stream here by itself: no other
// server may take a session for left alone while its client is connected.
type renewal struct {
	at      atomic.Int64 // Options.Elapsed of the latest
	running atomic.Bool  // the server is at it
}

func (r *renewal) done(now time.Duration) { r.at.Store(int64(now)) }

// renewalDue says whether the lease was not renewed here for a third of it.
func (a *attached) renewalDue() bool {
	return a.l.opt.Elapsed()-time.Duration(a.renewal.at.Load()) >= a.record.Lease/3
}

// Renew keeps the session alive for another lease. It writes at most every third of it, and waits for no other call:
// only, in the store, for a transaction of the session.
func (s *Session) Renew(ctx context.Context) error {
	if !s.renewalDue() {
		return nil
	}
	var record *sessionRecord
	_, err := s.l.store.Update(ctx, func(tx store.Tx) error {
		if _, err := s.lockProgress(tx); err != nil {
			return err
		}
		var err error
		record, err = s.writeRenewal(tx)
		return err
	})
	if err != nil {
		return fmt.Errorf("renew the lease: %w", err)
	}
	s.noteRenewed(record)
	return nil
}

// writeRenewal renews the lease in a transaction that holds the session's lane.
func (a *attached) writeRenewal(tx store.Tx) (*sessionRecord, error) {
	record, err := readSession(tx, a.record.ID)
	if err != nil {
		return nil, err
	}
	record.Renewed = a.l.opt.Now()
	return record, writeRecord(tx, sessionKey(record.ID), record)
}

// noteRenewed follows the commit of a renewal.
func (a *attached) noteRenewed(record *sessionRecord) {
	a.renewal.done(a.l.opt.Elapsed())
	a.l.catalog.replaceSession(record)
}

// runRenewals renews leases until the context ends.
func (l *Lineage) runRenewals(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ticker := time.NewTicker(min(renewalTick, l.opt.SweepInterval))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, a := range l.dueRenewals() {
			if a.renewal.running.CompareAndSwap(false, true) {
				running.Go(func() { l.renewInBackground(ctx, a) }) // one that has to wait holds up no other
			}
		}
	}
}

// dueRenewals are the sessions with a stream here whose lease is to be renewed.
func (l *Lineage) dueRenewals() []*attached {
	l.mu.Lock()
	defer l.mu.Unlock()
	var due []*attached
	for _, a := range l.live {
		if a.streams > 0 && !a.fenced.Load() && a.renewalDue() {
			due = append(due, a)
		}
	}
	return due
}

// renewInBackground renews a lease; after a failure it holds the next try up a little.
func (l *Lineage) renewInBackground(ctx context.Context, a *attached) {
	defer a.renewal.running.Store(false)
	err := a.renewHere(ctx)
	if err == nil || ctx.Err() != nil {
		return
	}
	event := l.opt.Log.Warn()
	if errors.Is(err, ErrFenced) || errors.Is(err, ErrSessionNotFound) {
		event = l.opt.Log.Debug() // its stream is told by its next frame
	}
	event.Err(err).Uint64("session", a.record.ID).Msg("lease not renewed")
	_ = pause(ctx, a.record.Lease/12) // only the end of the server cuts it short
}

// renewHere renews the lease for the newest stream here. It waits for a transaction of the session at most until the
// next renewal would be due.
func (a *attached) renewHere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.record.Lease/3)
	defer cancel()
	err := a.newestStream().Renew(ctx)
	if errors.Is(err, ErrFenced) {
		a.fenced.Store(true) // at another server: nothing to renew, or to read, from now on
	}
	return err
}
