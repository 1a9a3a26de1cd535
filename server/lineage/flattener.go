package lineage

import (
	"context"
	"errors"
	"sort"
	"sync/atomic"
	"time"
)

// flattenRetry is how long a session is left alone that could not be flattened.
const flattenRetry = 5 * time.Minute

// flattenedTotals is what this server has copied.
type flattenedTotals struct {
	rows, bytes atomic.Uint64
}

func (t *flattenedTotals) add(rows, bytes int) {
	t.rows.Add(uint64(rows))
	t.bytes.Add(uint64(bytes))
}

// runFlattener flattens sessions, one at a time and at the configured rate, until the context ends.
func (l *Lineage) runFlattener(ctx context.Context) {
	ticker := time.NewTicker(l.opt.SweepInterval)
	defer ticker.Stop()
	retries := map[uint64]time.Time{}
	for {
		for _, a := range l.layeredSessions() {
			if l.steadyNow().Before(retries[a.record.ID]) {
				continue
			}
			err := l.flatten(ctx, a)
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, ErrFenced) || errors.Is(err, ErrSessionNotFound):
				l.opt.Log.Debug().Err(err).Uint64("session", a.record.ID).Msg("flattening ended early")
			default:
				retries[a.record.ID] = l.steadyNow().Add(flattenRetry)
				l.opt.Log.Warn().Err(err).Uint64("session", a.record.ID).Str("operator", a.record.Operator).
					Msg("flattening failed, will be tried again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// layeredSessions are those with a stream at this server and layers that are old enough to be flattened.
func (l *Lineage) layeredSessions() []*attached {
	l.catalog.mu.RLock()
	var ids []uint64
	for id, s := range l.catalog.sessions {
		if layeredGroups(s.Parts) > 0 && l.oldEnough(s.Parts) {
			ids = append(ids, id)
		}
	}
	l.catalog.mu.RUnlock()
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	l.mu.Lock()
	defer l.mu.Unlock()
	var sessions []*attached
	for _, id := range ids {
		if a := l.live[id]; a != nil && a.streams > 0 {
			sessions = append(sessions, a)
		}
	}
	return sessions
}

// oldEnough says whether the youngest row space on top of others was made long enough ago. For callers that hold the
// catalog's lock.
func (l *Lineage) oldEnough(parts []part) bool {
	for _, p := range parts {
		space := l.catalog.spaces[p.Layers[0].Space]
		if !p.bottom() && (space == nil || l.steadyNow().Sub(space.Created) < l.opt.FlattenDelay) {
			return false
		}
	}
	return true
}

// layeredGroups counts the key groups with more than one layer.
func layeredGroups(parts []part) uint64 {
	var n uint64
	for _, p := range parts {
		if !p.bottom() {
			n += uint64(p.Last-p.First) + 1
		}
	}
	return n
}

// flatten makes all key groups of a session independent.
func (l *Lineage) flatten(ctx context.Context, a *attached) error {
	started := l.steadyNow()
	l.opt.Log.Info().Uint64("session", a.record.ID).Str("operator", a.record.Operator).Msg("flattening a fork")
	f := newFlattening(a)
	for !f.done {
		size, err := f.step(ctx)
		if err != nil {
			return err
		}
		if err := pause(ctx, time.Duration(float64(size)/float64(l.opt.FlattenRate)*float64(time.Second))); err != nil {
			return err
		}
	}
	l.opt.Log.Info().Uint64("session", a.record.ID).Str("operator", a.record.Operator).
		Dur("took", l.steadyNow().Sub(started)).Msg("fork flattened")
	return nil
}

// pause waits, at least for the context's sake.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
