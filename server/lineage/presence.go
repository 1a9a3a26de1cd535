package lineage

import (
	"context"
	"fmt"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// serverRecord says that a server is running, or was when it died. What a server remembers for its sweeper is only in its
// memory: the record is what tells others that this is lost. It goes when one of them has taken the sweeping over.
type serverRecord struct {
	Server  string        `json:"server"`
	Lease   time.Duration `json:"lease"`
	Every   time.Duration `json:"every"` // between renewals
	Renewed time.Time     `json:"renewed"`
}

// presence renews the record of this server and looks at those of the others. It compares no times of day, as with the
// leases of sessions: a server has died when this one has seen its record unrenewed for a whole lease. One that was only
// held up writes its record again, and has lost nothing: rows are then looked at twice. For one goroutine.
type presence struct {
	l      *Lineage
	record serverRecord
	seen   map[string]sighting // by record
}

func newPresence(l *Lineage) *presence {
	return &presence{l: l, seen: map[string]sighting{}, record: serverRecord{
		Server: l.opt.ServerID, Lease: l.opt.Lease, Every: min(l.opt.Lease/3, l.opt.SweepInterval),
	}}
}

func serverKey(id string) string { return serverPrefix + id }

// run follows the other servers until the context ends.
func (p *presence) run(ctx context.Context) {
	ticker := time.NewTicker(p.record.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.tryStep(ctx)
	}
}

// tryStep takes a step; one that fails, or takes too long, is made up for by the next.
func (p *presence) tryStep(ctx context.Context) {
	stepCtx, cancel := context.WithTimeout(ctx, p.record.Every)
	defer cancel()
	if err := p.step(stepCtx); err != nil && ctx.Err() == nil {
		p.l.opt.Log.Warn().Err(err).Msg("servers not followed, will be tried again")
	}
}

// step renews, and takes over from servers that have died: only one that would itself be missed may do so.
func (p *presence) step(ctx context.Context) error {
	if err := p.renew(ctx); err != nil {
		return err
	}
	servers, err := scanRecords[serverRecord](ctx, p.l.store, serverPrefix)
	if err != nil {
		return err
	}
	seen := make(map[string]sighting, len(servers))
	for _, s := range servers {
		if s.Server == p.record.Server {
			continue
		}
		last, known := p.seen[s.Server]
		if !known || !last.renewed.Equal(s.Renewed) {
			last = sighting{s.Renewed, p.l.opt.Elapsed()}
		}
		seen[s.Server] = last
		if p.l.opt.Elapsed()-last.since > s.Lease {
			if err := p.takeOver(ctx, s, last.since); err != nil {
				return err
			}
		}
	}
	p.seen = seen
	return nil
}

func (p *presence) renew(ctx context.Context) error {
	p.record.Renewed = p.l.opt.Now()
	_, err := p.l.store.Update(ctx, func(tx store.Tx) error {
		return writeRecord(tx, serverKey(p.record.Server), p.record)
	})
	if err != nil {
		return fmt.Errorf("renew the record of this server: %w", err)
	}
	return nil
}

// takeOver has all rows looked at that a dead server may have remembered, unless another server was faster. It was last
// seen alive at some moment, and may have remembered rows until it would have renewed next.
func (p *presence) takeOver(ctx context.Context, dead *serverRecord, seen time.Duration) error {
	l := p.l
	taken := false
	_, err := l.store.Update(ctx, func(tx store.Tx) error {
		taken = false
		key := serverKey(dead.Server)
		if _, err := tx.LockMeta(key); err != nil {
			return fmt.Errorf("lock %s: %w", key, err)
		}
		record := &serverRecord{}
		found, err := readRecord(tx.Meta, key, record)
		if err != nil || !found || !record.Renewed.Equal(dead.Renewed) {
			return err
		}
		taken = true
		return tx.DeleteMeta(key)
	})
	// After a failure the record may be gone all the same, and with it the reason for anyone to look.
	if (taken || err != nil) && !l.garbage.wholeSince(seen+dead.Every) {
		l.garbage.sweepEverything()
		l.garbage.wake()
	}
	if err != nil {
		return fmt.Errorf("take over from server %s: %w", dead.Server, err)
	}
	if taken {
		l.opt.Log.Info().Str("server", dead.Server).Msg("server has died, its sweeping goes on here")
	}
	return nil
}
