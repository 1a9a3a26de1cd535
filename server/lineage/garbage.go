package lineage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// pinRetention is how long a reader's pin lives when its server died.
const pinRetention = 24 * time.Hour

// garbage remembers what the sweeper has to look at: rows that writers left with a tombstone or with
// more than one version, and row spaces of which it is not known.
type garbage struct {
	maxRows int
	news    chan struct{}

	mu      sync.Mutex
	spaces  map[uint64]*spaceGarbage
	weight  int           // of the rows remembered, of all row spaces
	ended   []endedView   // of which it is not known whether others see what they saw
	whole   bool          // look at every row of every row space
	wholeAt time.Duration // Options.Elapsed when the latest pass began that did; negative before any
}

type spaceGarbage struct {
	all    bool                    // look at every row
	rows   map[string]store.RowKey // nil when all are looked at
	weight int                     // of these rows
}

// rowWeight is what a remembered row counts for: those with long keys count for several.
func rowWeight(key []byte) int { return 1 + len(key)/128 }

// endedView is what a session or snapshot that is no more saw of a row space.
type endedView struct {
	layer
	groups  Range
	session uint64 // 0 = it was a snapshot
}

func newGarbage(maxRows int) *garbage {
	return &garbage{maxRows: maxRows, news: make(chan struct{}, 1), spaces: map[uint64]*spaceGarbage{}, wholeAt: -1}
}

func (g *garbage) space(id uint64) *spaceGarbage {
	s := g.spaces[id]
	if s == nil {
		s = &spaceGarbage{rows: map[string]store.RowKey{}}
		g.spaces[id] = s
	}
	return s
}

// add remembers rows; their keys are copied.
func (g *garbage) add(rows []store.RowKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, row := range rows {
		g.addLocked(row)
	}
}

func (g *garbage) addLocked(row store.RowKey) {
	s := g.space(row.Space)
	if s.all {
		return
	}
	name := rowName(row)
	if _, known := s.rows[name]; known {
		return
	}
	weight := rowWeight(row.Key)
	for g.weight > 0 && g.weight+weight > g.maxRows {
		g.makeRoom()
		if s.all {
			return
		}
	}
	row.Key = []byte(name[4:])
	s.rows[name] = row
	s.weight += weight
	g.weight += weight
}

// makeRoom forgets the rows of the row space with the most, which is looked at as a whole instead: it is the one where
// that costs least for each row that is garbage.
func (g *garbage) makeRoom() {
	var largest *spaceGarbage
	for _, s := range g.spaces {
		if largest == nil || s.weight > largest.weight {
			largest = s
		}
	}
	g.lookAtAll(largest)
}

func (g *garbage) lookAtAll(s *spaceGarbage) {
	g.weight -= s.weight
	s.all, s.rows, s.weight = true, nil, 0
}

func rowName(row store.RowKey) string {
	name := binary.BigEndian.AppendUint16(make([]byte, 0, 4+len(row.Key)), row.Group)
	name = binary.BigEndian.AppendUint16(name, row.State)
	return string(append(name, row.Key...))
}

// sweepAll has a whole row space looked at.
func (g *garbage) sweepAll(space uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookAtAll(g.space(space))
}

// sweepEverything has all row spaces looked at, those too that the next pass will be the first to know of.
func (g *garbage) sweepEverything() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.whole = true
}

// wholeSince says whether everything has been looked at, or what failed is remembered, since some moment.
func (g *garbage) wholeSince(moment time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wholeAt >= moment
}

// end remembers views that have ended.
func (g *garbage) end(views ...endedView) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = append(g.ended, views...)
}

// endLayers remembers that someone sees key groups through some layers no more.
func (g *garbage) endLayers(groups Range, layers []layer, session uint64) {
	for _, shown := range layers {
		g.end(endedView{shown, groups, session})
	}
}

func (g *garbage) takeEnded() []endedView {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.ended
	g.ended = nil
	return taken
}

// take hands over what is remembered to a pass that began at some moment; whole says that every row is to be looked at.
func (g *garbage) take(began time.Duration) (taken map[uint64]*spaceGarbage, whole bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken, whole = g.spaces, g.whole
	g.spaces, g.weight, g.whole = map[uint64]*spaceGarbage{}, 0, false
	if whole {
		g.wholeAt = began
	}
	return taken, whole
}

// giveBack remembers again what was taken and not swept.
func (g *garbage) giveBack(space uint64, taken *spaceGarbage) {
	if taken == nil {
		return
	}
	if taken.all {
		g.sweepAll(space)
		return
	}
	g.add(slices.Collect(maps.Values(taken.rows)))
}

// wake has the sweeper run soon: something was released or ended.
func (g *garbage) wake() {
	select {
	case g.news <- struct{}{}:
	default:
	}
}

// Run collects garbage, also that of servers that have died, renews leases and flattens forks until the context ends.
func (l *Lineage) Run(ctx context.Context) {
	var others sync.WaitGroup
	defer others.Wait()
	if !l.opt.Exclusive {
		p := newPresence(l)
		p.tryStep(ctx) // before there is anything to remember, and before the first pass begins
		others.Go(func() { p.run(ctx) })
	}
	others.Go(func() { l.runRenewals(ctx) })
	if l.opt.FlattenRate > 0 {
		others.Go(func() { l.runFlattener(ctx) })
	}
	l.runSweeper(ctx)
}

// runSweeper collects garbage: at once (but not more than once a second) after something was released, else in the
// sweep interval.
func (l *Lineage) runSweeper(ctx context.Context) {
	timer := time.NewTimer(l.opt.SweepInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.garbage.news:
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(time.Second, l.opt.SweepInterval)):
			}
		}
		if _, err := l.collect(ctx, false); err != nil && ctx.Err() == nil {
			l.opt.Log.Warn().Err(err).Msg("garbage collection failed, will be tried again")
		}
		timer.Reset(l.opt.SweepInterval)
	}
}

// Collect runs one garbage collection over everything, or with checkOnly reports what one would do.
func (l *Lineage) Collect(ctx context.Context, checkOnly bool) (GarbageReport, error) {
	if checkOnly {
		return l.check(ctx)
	}
	return l.collect(ctx, true)
}

// collect ends what has expired, drops row spaces that nobody sees, and sweeps rows: all of them, or
// those that are remembered.
func (l *Lineage) collect(ctx context.Context, everything bool) (GarbageReport, error) {
	var report GarbageReport
	began := l.opt.Elapsed()
	ended := l.garbage.takeEnded()
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		l.garbage.end(ended...)
		return report, fmt.Errorf("read the catalog: %w", err)
	}
	l.sweepOrphans(ended)
	l.catalog.mu.RLock()
	l.leases.keep(l.catalog.sessions)
	l.catalog.mu.RUnlock()
	l.dropEnded()
	if err := l.expireSessions(ctx, &report); err != nil {
		return report, err
	}
	if err := l.releaseOverdue(ctx, &report); err != nil {
		return report, err
	}
	if err := l.dropLanes(ctx); err != nil {
		return report, err
	}
	if err := l.dropSpaces(ctx, &report); err != nil {
		return report, err
	}
	return report, l.sweep(ctx, everything, began, &report)
}

func (l *Lineage) expiredSessions() []*sessionRecord {
	l.catalog.mu.RLock()
	defer l.catalog.mu.RUnlock()
	var expired []*sessionRecord
	for _, s := range l.catalog.sessions {
		if l.expired(s) {
			expired = append(expired, s)
		}
	}
	return expired
}

func (l *Lineage) expireSessions(ctx context.Context, report *GarbageReport) error {
	for _, s := range l.expiredSessions() {
		ended, err := l.expire(ctx, s.ID)
		if err != nil {
			return fmt.Errorf("expire session %d: %w", s.ID, err)
		}
		if ended {
			report.ExpiredSessions++
			l.opt.Log.Info().Uint64("session", s.ID).Str("operator", s.Operator).Msg("lease expired, session ended")
		}
	}
	return nil
}

// expire ends a session if its lease has still expired once the locks are held.
func (l *Lineage) expire(ctx context.Context, id uint64) (bool, error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	ended := false
	record := &sessionRecord{}
	_, err := l.store.Update(ctx, func(tx store.Tx) (err error) {
		ended, err = l.endExpired(tx, id, record)
		return err
	})
	if err != nil || !ended {
		return false, err
	}
	// The session may have taken snapshots at another server, which writers here must know before they stop keeping
	// what the session sees.
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return false, fmt.Errorf("read the catalog: %w", err)
	}
	if a := l.forget(id); a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.forgetNewRows()
	} else {
		l.sweepSpaces(record.Parts) // the server that knew which rows may have died
	}
	return true, nil
}

// endExpired is the transaction of expire.
func (l *Lineage) endExpired(tx store.Tx, id uint64, record *sessionRecord) (ended bool, err error) {
	if _, err := tx.LockMeta(gateKey); err != nil {
		return false, fmt.Errorf("lock %s: %w", gateKey, err)
	}
	if _, err := tx.LockMeta(laneKey(id)); err != nil {
		return false, fmt.Errorf("lock the lane: %w", err)
	}
	*record = sessionRecord{}
	found, err := readRecord(tx.Meta, sessionKey(id), record)
	if err != nil {
		return false, err
	}
	ended = !found || l.expired(record)
	if !found || !ended {
		return ended, nil
	}
	return ended, errors.Join(endSession(tx, record), tx.DeleteMeta(laneKey(id)))
}

// releaseOverdue releases snapshots that nobody will.
func (l *Lineage) releaseOverdue(ctx context.Context, report *GarbageReport) error {
	for _, id := range l.overdueSnapshots(l.catalog) {
		released, err := l.releaseIf(ctx, id, func(tx store.Tx, s *snapshotRecord) (bool, error) {
			session, err := tx.Meta(sessionKey(s.Session))
			if err != nil {
				return false, fmt.Errorf("read %s: %w", sessionKey(s.Session), err)
			}
			return l.overdue(s, session != nil), nil
		})
		if err != nil {
			return err
		}
		if released {
			report.ReleasedSnapshots++
		}
	}
	return nil
}

// overdueSnapshots are those that are overdue as far as a catalog tells.
func (l *Lineage) overdueSnapshots(c *catalog) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var overdue []string
	for _, s := range c.snapshots {
		if l.overdue(s, c.sessions[s.Session] != nil) {
			overdue = append(overdue, s.ID)
		}
	}
	return overdue
}

// overdue says whether nobody will release a snapshot any more: exports whose session has ended, pins of dead
// servers, and abandoned ones after their retention.
func (l *Lineage) overdue(s *snapshotRecord, sessionLives bool) bool {
	now := l.steadyNow()
	// Servers before this rule marked savepoints, too.
	abandoned := s.Kind != SnapshotSavepoint && !s.Confirmed && !s.Abandoned.IsZero() && now.Sub(s.Abandoned) >= l.opt.AbandonedRetention
	orphaned := s.Kind == SnapshotExport && s.Session != 0 && !sessionLives
	unpinned := s.Kind == SnapshotExport && s.Session == 0 && now.Sub(s.Created) >= pinRetention && !l.pinnedHere(s.ID)
	return abandoned || orphaned || unpinned
}

// dropLanes removes the lanes of sessions that have ended. A late writer finds no lane then, which
// refuses it as well as a fenced one did.
func (l *Lineage) dropLanes(ctx context.Context) error {
	lanes, err := l.store.ScanMeta(ctx, lanePrefix)
	if err != nil {
		return fmt.Errorf("read the lanes: %w", err)
	}
	for _, m := range lanes {
		session := sessionPrefix + m.Key[len(lanePrefix):]
		_, err := l.store.Update(ctx, func(tx store.Tx) error {
			known, err := tx.Meta(session)
			if err != nil || known != nil {
				return err
			}
			if _, err := tx.LockMeta(gateKey); err != nil {
				return fmt.Errorf("lock %s: %w", gateKey, err)
			}
			if _, err := tx.LockMeta(m.Key); err != nil {
				return fmt.Errorf("lock %s: %w", m.Key, err)
			}
			// Sessions and their lanes come and go in one transaction under the gate.
			if known, err = tx.Meta(session); err != nil || known != nil {
				return err
			}
			return tx.DeleteMeta(m.Key)
		})
		if err != nil {
			return fmt.Errorf("drop %s: %w", m.Key, err)
		}
	}
	return nil
}

// unseenSpaces are row spaces that no session and no snapshot sees.
func (c *catalog) unseenSpaces() []uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	seen := map[uint64]bool{}
	for _, s := range c.sessions {
		for _, id := range spacesOf(s.Parts) {
			seen[id] = true
		}
	}
	for _, s := range c.snapshots {
		for _, id := range spacesOf(s.Parts) {
			seen[id] = true
		}
	}
	var unseen []uint64
	for id := range c.spaces {
		if !seen[id] {
			unseen = append(unseen, id)
		}
	}
	return unseen
}

// dropSpaces removes row spaces that nobody sees. Nobody can come to see one again, because every view
// is made from another, so no lock is needed once the records were read under the gate.
func (l *Lineage) dropSpaces(ctx context.Context, report *GarbageReport) error {
	candidates := l.catalog.unseenSpaces()
	if len(candidates) == 0 {
		return nil
	}
	for _, id := range candidates {
		unseen, err := l.confirmUnseen(ctx, id)
		if err != nil {
			return err
		}
		if !unseen {
			continue
		}
		if err := l.store.DropSpace(ctx, id); err != nil {
			return fmt.Errorf("drop row space %d: %w", id, err)
		}
		if _, err := l.store.Update(ctx, func(tx store.Tx) error { return tx.DeleteMeta(spaceKey(id)) }); err != nil {
			return fmt.Errorf("forget row space %d: %w", id, err)
		}
		l.catalog.change(func() { delete(l.catalog.spaces, id) })
		report.DroppedSpaces++
	}
	return nil
}

// confirmUnseen asks the store itself, with the gate held.
func (l *Lineage) confirmUnseen(ctx context.Context, id uint64) (bool, error) {
	unseen := true
	_, err := l.store.Update(ctx, func(tx store.Tx) error {
		unseen = true
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		views, err := readViews(tx)
		if err != nil {
			return err
		}
		unseen = !views.sees(id)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for users of row space %d: %w", id, err)
	}
	return unseen, nil
}
