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
	complete  uint64 // whatever took a number from the store's counter up to this one is here
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
	complete, err := lastNumber(storeMeta(ctx, st))
	if err != nil {
		return err
	}
	scan := func(prefix string) ([]store.Meta, error) { return st.ScanMeta(ctx, prefix) }
	snapshots := map[string]*snapshotRecord{}
	sessions := map[uint64]*sessionRecord{}
	spaces := map[uint64]*spaceRecord{}
	read := func() error {
		list, err := scanRecords[snapshotRecord](scan, snapshotPrefix)
		for _, s := range list {
			snapshots[s.ID] = s
		}
		return err
	}
	if err := read(); err != nil {
		return err
	}
	sessionList, err := scanRecords[sessionRecord](scan, sessionPrefix)
	if err != nil {
		return err
	}
	for _, s := range sessionList {
		sessions[s.ID] = s
	}
	if err := read(); err != nil {
		return err
	}
	spaceList, err := scanRecords[spaceRecord](scan, spacePrefix)
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
	c.complete = complete
	c.version++
	return nil
}

// newcomers are sessions and pins of readers that another server made since the catalog was read: views
// that were copied from one which is known here, and need what it needs.
type newcomers struct {
	complete uint64
	sessions []*sessionRecord
	pins     []*snapshotRecord
}

// newcomers looks for them, with the gate held, before a view that they may have been copied from goes.
func (c *catalog) newcomers(tx store.Tx) (*newcomers, error) {
	last, err := lastNumber(tx.Meta)
	if err != nil {
		return nil, err
	}
	c.mu.RLock()
	complete := c.complete
	c.mu.RUnlock()
	if last == complete {
		return &newcomers{complete: last}, nil
	}
	sessions, err := scanRecords[sessionRecord](tx.ScanMeta, sessionPrefix)
	if err != nil {
		return nil, err
	}
	pins, err := scanRecords[snapshotRecord](tx.ScanMeta, snapshotPrefix+pinPrefix)
	if err != nil {
		return nil, err
	}
	return &newcomers{last, sessions, pins}, nil
}

// add takes them in. To be called in a change, by one who holds what keeps others from opening and
// ending here (Lineage.structure).
func (c *catalog) add(n *newcomers) {
	for _, s := range n.sessions {
		if c.sessions[s.ID] == nil {
			c.sessions[s.ID] = s
		}
	}
	for _, pin := range n.pins {
		c.snapshots[pin.ID] = pin
	}
	c.complete = max(c.complete, n.complete)
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
