package lineage

import (
	"context"
	"fmt"
	"sync"

	"github.com/flinkndb/flinkndb/server/store"
)

// catalog is this server's picture of the sessions, snapshots and row spaces in the store. It may
// lag behind what other servers release or close, which only keeps versions longer: a retained
// view never comes into being without this server knowing, as far as its own sessions' rows are
// concerned (docs/design.md, "Rows and versions").
type catalog struct {
	mu        sync.RWMutex
	version   uint64 // grows with each change
	sessions  map[uint64]*sessionRecord
	snapshots map[string]*snapshotRecord
	spaces    map[uint64]*spaceRecord
}

func newCatalog() *catalog {
	return &catalog{
		sessions:  map[uint64]*sessionRecord{},
		snapshots: map[string]*snapshotRecord{},
		spaces:    map[uint64]*spaceRecord{},
	}
}

// refresh reads everything again. Snapshots are read before and after the sessions: what moves from
// a session to a snapshot or the other way meanwhile is seen in one of the places.
func (c *catalog) refresh(ctx context.Context, st store.Store) error {
	c.mu.RLock()
	before := c.version
	c.mu.RUnlock()
	snapshots := map[string]*snapshotRecord{}
	sessions := map[uint64]*sessionRecord{}
	spaces := map[uint64]*spaceRecord{}
	read := func() error {
		list, err := scanRecords[snapshotRecord](ctx, st, snapshotPrefix)
		for _, s := range list {
			snapshots[s.ID] = s
		}
		return err
	}
	if err := read(); err != nil {
		return err
	}
	sessionList, err := scanRecords[sessionRecord](ctx, st, sessionPrefix)
	if err != nil {
		return err
	}
	for _, s := range sessionList {
		sessions[s.ID] = s
	}
	if err := read(); err != nil {
		return err
	}
	spaceList, err := scanRecords[spaceRecord](ctx, st, spacePrefix)
	if err != nil {
		return err
	}
	for _, s := range spaceList {
		spaces[s.ID] = s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version != before {
		return nil // this server changed something meanwhile: what it holds is newer, try next time
	}
	c.sessions, c.snapshots, c.spaces = sessions, snapshots, spaces
	c.version++
	return nil
}

func (c *catalog) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
	c.version++
}

// views returns the histories through which anyone looks at a key group of a row space, except the
// session `but` (0 = none), without repeats.
func (c *catalog) views(space uint64, group uint16, but uint64) []History {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var views []History
	collect := func(parts []part) {
		for i := range parts {
			if !parts[i].contains(group) {
				continue
			}
			for _, l := range parts[i].Layers {
				if l.Space == space {
					views = addView(views, l.History)
				}
			}
		}
	}
	for _, s := range c.snapshots {
		collect(s.Parts)
	}
	for _, s := range c.sessions {
		if s.ID != but {
			collect(s.Parts)
		}
	}
	return views
}

func addView(views []History, h History) []History {
	for _, known := range views {
		if known.equal(h) {
			return views
		}
	}
	return append(views, h)
}

// bottom says whether nothing lies below a key group of a row space, whoever looks at it.
func (c *catalog) bottom(space uint64, group uint16) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	isBottom := true
	check := func(parts []part) {
		for _, p := range parts {
			if !p.contains(group) {
				continue
			}
			for i, l := range p.Layers {
				if l.Space == space && i < len(p.Layers)-1 {
					isBottom = false
				}
			}
		}
	}
	for _, s := range c.snapshots {
		check(s.Parts)
	}
	for _, s := range c.sessions {
		check(s.Parts)
	}
	return isBottom
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
