package lineage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

const (
	// flattenRows and flattenBytes bound what is copied while the session's own writes wait.
	flattenRows  = 256
	flattenBytes = 1 << 20
	// cutInterval is the least time between two cuts: each writes the whole record of the session.
	cutInterval = 5 * time.Second
)

// flattening makes key groups of one session independent of the row spaces that they read through to: it copies what
// is visible there below all versions in the top row space, and then has the session see the top layer only.
//
// A copy has the first stamp of the row space, so that it is older than all that was written there, and whoever sees
// the row space sees it. As what lies below is the same for everybody, and does not change, a copy is what a reader
// without it would find one layer deeper: it changes nothing for anyone, whenever it comes, and may be repeated.
//
// It works like a write of the session: at the server that has its newest stream, one transaction a page, under the
// session's lane. What a part says is all that there is of its progress. Not for concurrent use.
type flattening struct {
	a           *attached
	page        int           // most rows of a page
	cutInterval time.Duration // least time between two cuts

	group   int       // that is being copied, or the next one
	first   int       // group from which on copied ones were not cut yet
	cutAt   time.Time // of the last cut
	source  sharedRows
	copying bool // the source is that of the group
	done    bool
	err     error // that ended it: a page may be missing
}

// sharedRows walks what is visible below the top layer of a key group.
type sharedRows struct {
	layers []layer
	states []StateInfo
	state  int // being walked
	scan   *groupScan
}

func newFlattening(a *attached) *flattening {
	group := int(a.record.Range.First)
	return &flattening{a: a, page: flattenRows, cutInterval: cutInterval, group: group, first: group, cutAt: a.l.steadyNow()}
}

// step copies a page or cuts layers, and says how many bytes it went through. An error ends the flattening; another one
// may begin.
func (f *flattening) step(ctx context.Context) (size int, err error) {
	if f.err == nil {
		size, f.err = f.advance(ctx)
	}
	return size, f.err
}

func (f *flattening) advance(ctx context.Context) (int, error) {
	if !f.copying {
		return 0, f.nextGroup(ctx)
	}
	rows, size, err := f.readPage(ctx)
	if err != nil {
		return 0, err
	}
	if len(rows) > 0 {
		return size, f.copy(ctx, rows)
	}
	if f.source.state++; f.source.state < len(f.source.states) {
		return 0, nil
	}
	f.copying = false
	f.group++
	if f.a.l.steadyNow().Sub(f.cutAt) < f.cutInterval && f.group <= int(f.a.record.Range.Last) {
		return 0, nil
	}
	return 0, f.cut(ctx)
}

// nextGroup looks for a key group with layers below, or cuts the last ones and ends.
func (f *flattening) nextGroup(ctx context.Context) error {
	for ; f.group <= int(f.a.record.Range.Last); f.group++ {
		layers, err := f.a.layersOf(uint16(f.group))
		if err != nil {
			return err
		}
		if len(layers) == 1 {
			continue
		}
		if !sameLayers(layers, f.source.layers) {
			states, err := f.a.l.statesIn(ctx, spacesOf([]part{{Layers: layers[1:]}}))
			if err != nil {
				return err
			}
			f.source = sharedRows{layers: layers, states: states}
		}
		f.source.state, f.source.scan, f.copying = 0, nil, true
		return nil
	}
	f.done = true
	if f.first == f.group {
		return nil
	}
	return f.cut(ctx)
}

// layersOf returns what the session sees of a key group.
func (a *attached) layersOf(group uint16) ([]layer, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	i, err := a.partOf(group)
	if err != nil {
		return nil, err
	}
	return a.parts[i].Layers, nil
}

// readPage returns the next rows of the current state; none at its end. They may be read outside of any transaction:
// as long as the session sees these layers, what it sees through them stays.
func (f *flattening) readPage(ctx context.Context) ([]visibleRow, int, error) {
	s := &f.source
	if s.state >= len(s.states) {
		return nil, 0, nil
	}
	if s.scan == nil {
		numbers, err := f.a.l.numbersIn(ctx, s.layers[1:], s.states[s.state])
		if err != nil {
			return nil, 0, err
		}
		s.scan = layeredScan(storeReader{ctx, f.a.l.store}, s.layers[1:], numbers, uint16(f.group), nil, nil, f.page)
	}
	var rows []visibleRow
	size := 0
	for len(rows) < f.page && size < flattenBytes {
		row, ok, err := s.scan.next()
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			break
		}
		rows = append(rows, row)
		size += len(row.Key) + len(row.Value)
	}
	if len(rows) == 0 {
		s.scan = nil
	}
	return rows, size, nil
}

// copy puts rows below what the top row space has of them. It is a write of the session, which reads do not wait for.
func (f *flattening) copy(ctx context.Context, rows []visibleRow) error {
	info := f.source.states[f.source.state]
	top, err := f.a.l.stateNumber(ctx, f.source.layers[0].Space, info.Name, info.Kind, true)
	if err != nil {
		return err
	}
	f.a.writes.Lock()
	defer f.a.writes.Unlock()
	f.a.mu.RLock()
	defer f.a.mu.RUnlock()
	index, err := f.a.partOf(uint16(f.group))
	if err != nil {
		return err
	}
	if !sameLayers(f.a.parts[index].Layers, f.source.layers) {
		return nil // cut at another server, so what was read may have been dropped meanwhile
	}
	var c *copying
	_, err = f.a.l.store.Update(ctx, func(tx store.Tx) error {
		s := f.a.newestStream()
		c = &copying{w: writing{s: s, tx: tx}}
		return c.run(index, top.number, rows)
	})
	if err != nil {
		return fmt.Errorf("copy rows of group %d: %w", f.group, err)
	}
	f.a.l.garbage.add(c.w.surplus)
	f.a.l.flattened.add(c.rows, c.bytes)
	return nil
}

// copying is the transaction that copies a page.
type copying struct {
	w     writing
	rows  int
	bytes int
}

func (c *copying) run(index int, state uint16, rows []visibleRow) error {
	if _, err := c.w.s.lockProgress(c.w.tx); err != nil {
		return err
	}
	p := c.w.s.parts[index]
	for _, row := range rows {
		key := store.RowKey{Space: p.Layers[0].Space, Group: row.Group, State: state, Key: row.Key}
		c.w.rows = append(c.w.rows, pendingRow{key: key, part: index})
	}
	if err := c.w.load(); err != nil {
		return err
	}
	views := c.w.s.views.of(c.w.s.attached, index, rows[0].Group).views
	var needed []pendingRow
	for i := range c.w.rows {
		row := &c.w.rows[i]
		if row.existed && !readThrough(row.versions, views) {
			continue // overwritten for everybody, or copied before
		}
		row.versions = append(row.versions, version{kindFull, p.firstStamp(), rows[i].Value})
		c.rows++
		c.bytes += len(rows[i].Key) + len(rows[i].Value)
		needed = append(needed, *row)
	}
	c.w.rows = needed
	return c.w.store()
}

// readThrough says whether any view needs what lies below all versions.
func readThrough(versions []version, views []History) bool {
	for _, h := range views {
		var r resolution
		if !r.add(versions, h) {
			return true
		}
	}
	return false
}

// cut has the session see the top layer only of the key groups that were copied. Openings and sweepers are kept out
// by the gate, another stream by the lane. Snapshots keep what they see.
func (f *flattening) cut(ctx context.Context) error {
	l := f.a.l
	groups := Range{uint16(f.first), uint16(f.group - 1)}
	l.structure.Lock()
	defer l.structure.Unlock()
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	var record *sessionRecord
	commit, err := l.store.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		s := f.a.newestStream()
		if _, err := s.lockProgress(tx); err != nil {
			return err
		}
		var err error
		if record, err = readSession(tx, f.a.record.ID); err != nil {
			return err
		}
		record.Parts = cutLayers(record.Parts, groups)
		return writeRecord(tx, sessionKey(record.ID), record)
	})
	if err != nil {
		// Perhaps it was committed after all. A snapshot with layers that are gone must not be.
		f.a.unsure.Store(!errors.Is(err, ErrFenced) && !errors.Is(err, ErrSessionNotFound))
		return fmt.Errorf("cut the layers of groups %d to %d: %w", groups.First, groups.Last, err)
	}
	// From here on the session's reads and snapshots are without the layers, and rows below them may go.
	before := f.a.parts
	f.a.setParts(record.Parts)
	f.first, f.cutAt = f.group, l.steadyNow()
	if err := commit.Wait(ctx); err != nil {
		f.a.unsure.Store(true) // the store may have lost the cut, and the copies before it
		return fmt.Errorf("cut the layers of groups %d to %d: %w", groups.First, groups.Last, err)
	}
	l.catalog.replaceSession(record)
	for _, p := range before {
		if p.overlaps(groups) {
			l.garbage.endLayers(Range{max(p.First, groups.First), min(p.Last, groups.Last)}, p.Layers[1:], 0)
		}
	}
	l.garbage.wake()
	return nil
}
