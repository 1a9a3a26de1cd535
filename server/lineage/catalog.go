package lineage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/flinkndb/flinkndb/server/store"
)

// catalog is this server's picture of the sessions, snapshots and row spaces in the store. It may
// lag behind what other servers release or close, which only keeps versions longer: a retained
// view never comes into being without this server knowing, as far as its own sessions' rows are
// concerned (docs/design.md, "Rows and versions").
type catalog struct {
	refreshing sync.Mutex // what was read first is shown first

	mu        sync.RWMutex
	version   uint64 // grows with each change
	counter   uint64 // of the store, as of when everything was read: views made since have higher numbers
	sessions  map[uint64]*sessionRecord
	snapshots map[string]*snapshotRecord
	spaces    map[uint64]*spaceRecord

	reading bool
	since   []func() // the changes while everything is being read
}

func newCatalog() *catalog {
	return &catalog{
		sessions:  map[uint64]*sessionRecord{},
		snapshots: map[string]*snapshotRecord{},
		spaces:    map[uint64]*spaceRecord{},
	}
}

// refresh reads everything again. Snapshots are read before and after the sessions: what moves from a session to a
// snapshot or the other way meanwhile is seen in one of the places. What this server changes meanwhile is done again
// to what was read: some of that may have ended at another server since, which the next refresh shows.
func (c *catalog) refresh(ctx context.Context, st store.Store) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	c.recordChanges()
	read, err := readCatalog(ctx, st)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.counter, c.sessions, c.snapshots, c.spaces = read.counter, read.sessions, read.snapshots, read.spaces
		for _, fn := range c.since {
			fn()
		}
		c.version++
	}
	c.reading, c.since = false, nil
	return err
}

func (c *catalog) recordChanges() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = true
}

func readCatalog(ctx context.Context, st store.Store) (*catalog, error) {
	c := newCatalog()
	var err error
	if c.counter, err = readCounter(storeMeta(ctx, st)); err != nil {
		return nil, err
	}
	if err := c.readSnapshots(ctx, st); err != nil {
		return nil, err
	}
	sessions, err := scanRecords[sessionRecord](ctx, st, sessionPrefix)
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		c.sessions[s.ID] = s
	}
	if err := c.readSnapshots(ctx, st); err != nil {
		return nil, err
	}
	spaces, err := scanRecords[spaceRecord](ctx, st, spacePrefix)
	if err != nil {
		return nil, err
	}
	for _, s := range spaces {
		c.spaces[s.ID] = s
	}
	return c, nil
}

func (c *catalog) readSnapshots(ctx context.Context, st store.Store) error {
	snapshots, err := scanRecords[snapshotRecord](ctx, st, snapshotPrefix)
	if err != nil {
		return err
	}
	for _, s := range snapshots {
		c.snapshots[s.ID] = s
	}
	return nil
}

// change shows what this server has changed in the store. fn may run twice.
func (c *catalog) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changeLocked(fn)
}

func (c *catalog) changeLocked(fn func()) {
	fn()
	c.version++
	if c.reading {
		c.since = append(c.since, fn)
	}
}

// took notes numbers that a change of this server has taken from the store's counter. If others have taken some since
// everything was read, what they made is not known here, and the catalog's counter stays.
func (c *catalog) took(first, n uint64) {
	if c.counter == first-1 {
		c.counter += n
	}
}

// forgetSnapshot takes out a snapshot that was released when the store's counter had some value. It does not if
// another server may have opened a session or a reader from it that is not known here: what writers here keep for the
// snapshot they must then keep for these.
func (c *catalog) forgetSnapshot(id string, counter uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counter != counter {
		return false
	}
	c.changeLocked(func() { delete(c.snapshots, id) })
	return true
}

// views returns the views through which anyone looks at a key group of a row space, except the session
// `but` (0 = none).
func (c *catalog) views(space uint64, group uint16, but uint64) groupViews {
	c.mu.RLock()
	defer c.mu.RUnlock()
	seen := groupViews{bottom: true}
	for _, s := range c.snapshots {
		seen.add(s.Parts, space, group)
	}
	for _, s := range c.sessions {
		if s.ID != but {
			seen.add(s.Parts, space, group)
		}
	}
	return seen
}

// continued says whether others see all of the newest that an ended view saw.
func (c *catalog) continued(v endedView) bool {
	if len(v.History) == 0 {
		return true
	}
	newest := v.History[len(v.History)-1]
	sees := func(l layer) bool { return l.Space == v.Space && l.History.sees(stamp{newest.Gen, newest.Last}) }
	var seen []Range
	add := func(parts []part) {
		for _, p := range parts {
			if p.overlaps(v.groups) && slices.ContainsFunc(p.Layers, sees) {
				seen = append(seen, p.Range)
			}
		}
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, s := range c.sessions {
		if s.ID != v.session {
			add(s.Parts)
		}
	}
	for _, s := range c.snapshots {
		add(s.Parts)
	}
	return covered(v.groups, seen)
}

// covered says whether ranges together hold all key groups of one.
func covered(groups Range, by []Range) bool {
	slices.SortFunc(by, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
	next := uint32(groups.First)
	for _, r := range by {
		if uint32(r.First) <= next {
			next = max(next, uint32(r.Last)+1)
		}
	}
	return next > uint32(groups.Last)
}

func (c *catalog) hasSession(id uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.sessions[id] != nil
}

// replaceSession takes over a session's changed record, unless the session has ended since.
func (c *catalog) replaceSession(record *sessionRecord) {
	c.change(func() {
		if c.sessions[record.ID] != nil {
			c.sessions[record.ID] = record
		}
	})
}

func (c *catalog) currentVersion() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// space returns a row space's record, from memory or from the store.
func (l *Lineage) space(ctx context.Context, id uint64) (*spaceRecord, error) {
	l.catalog.mu.RLock()
	known := l.catalog.spaces[id]
	l.catalog.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	return l.readSpace(ctx, id)
}

func (l *Lineage) readSpace(ctx context.Context, id uint64) (*spaceRecord, error) {
	record := &spaceRecord{}
	found, err := readRecord(storeMeta(ctx, l.store), spaceKey(id), record)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("row space %d has no record", id)
	}
	l.catalog.change(func() { l.catalog.spaces[id] = record })
	return record, nil
}

// statesIn lists the states of row spaces, as the store knows them now.
func (l *Lineage) statesIn(ctx context.Context, spaces []uint64) ([]StateInfo, error) {
	var union spaceRecord
	for _, id := range spaces {
		space, err := l.readSpace(ctx, id)
		if err != nil {
			return nil, err
		}
		for _, s := range space.States {
			if _, known := union.state(s.Name, s.Kind); !known {
				union.States = append(union.States, StateInfo{uint16(len(union.States)), s.Name, s.Kind})
			}
		}
	}
	return union.States, nil
}

// numbersIn returns a state's number in the row space of each layer.
func (l *Lineage) numbersIn(ctx context.Context, layers []layer, s StateInfo) ([]stateNumber, error) {
	numbers := make([]stateNumber, len(layers))
	for i, layer := range layers {
		var err error
		if numbers[i], err = l.stateNumber(ctx, layer.Space, s.Name, s.Kind, false); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}
