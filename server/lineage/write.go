package lineage

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/flinkndb/flinkndb/server/store"
)

// Write applies the entries of one frame in one transaction. A seq that was applied before does
// nothing. The changes are visible on return; Durable tells when they are durable.
func (s *Session) Write(ctx context.Context, seq, epoch uint64, entries []Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkEntries(entries); err != nil {
		return err
	}
	var w *writing
	commit, err := s.l.store.Update(ctx, func(tx store.Tx) error {
		w = &writing{s: s, tx: tx, at: stamp{s.record.ID, epoch}}
		return w.run(seq, entries)
	})
	if err != nil {
		return fmt.Errorf("write %d: %w", seq, err)
	}
	if w.skipped {
		return nil
	}
	s.commits.add(seq, commit)
	s.l.garbage.add(w.surplus)
	return nil
}

func (s *Session) checkEntries(entries []Entry) error {
	limits := s.l.store.Limits()
	for i := range entries {
		e := &entries[i]
		state, err := s.state(e.State)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if _, err := s.partOf(e.Group); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		switch {
		case e.Op < OpPut || e.Op > OpDeletePrefix:
			return fmt.Errorf("%w: entry %d: op is %d, allowed are 1 to 4", ErrInvalid, i, e.Op)
		case e.Op == OpAppend && state.kind != KindList:
			return fmt.Errorf("%w: entry %d: append to state %q, which is no list", ErrInvalid, i, state.name)
		case len(e.Key) > limits.MaxKeyBytes:
			return fmt.Errorf("%w: key of %d bytes in state %q, the store takes %d", ErrTooLarge, len(e.Key), state.name, limits.MaxKeyBytes)
		case len(e.Value) > limits.MaxValueBytes:
			return fmt.Errorf("%w: value of %d bytes in state %q, the store takes %d", ErrTooLarge, len(e.Value), state.name, limits.MaxValueBytes)
		}
	}
	return nil
}

// writing is the transaction of one frame.
type writing struct {
	s  *Session
	tx store.Tx
	at stamp

	rows    map[string]*pendingRow
	order   []*pendingRow
	keyBuf  []byte
	surplus []store.RowKey // rows left with something for the sweeper
	skipped bool

	deltaRows  uint64
	deltaBytes uint64
}

// pendingRow is a row that the frame changes.
type pendingRow struct {
	key      store.RowKey
	part     int
	existed  bool
	versions []version
}

func (w *writing) run(seq uint64, entries []Entry) error {
	progress, err := w.s.lockProgress(w.tx)
	if err != nil {
		return err
	}
	if seq <= progress.Applied {
		w.skipped = true
		return nil
	}
	if seq != progress.Applied+1 {
		return fmt.Errorf("%w: seq is %d, expected %d", ErrInvalid, seq, progress.Applied+1)
	}
	if w.at.Epoch < progress.Epoch || w.at.Epoch == 0 {
		return fmt.Errorf("%w: epoch is %d, at least %d is expected", ErrInvalid, w.at.Epoch, max(progress.Epoch, 1))
	}
	if err := w.apply(entries); err != nil {
		return err
	}
	progress.Applied, progress.Epoch = seq, w.at.Epoch
	progress.DeltaRows += w.deltaRows
	progress.DeltaBytes += w.deltaBytes
	if err := w.tx.PutMeta(laneKey(w.s.record.ID), progress.encode()); err != nil {
		return fmt.Errorf("write the lane: %w", err)
	}
	return nil
}

// apply works through the entries; a DeletePrefix has to see the changes before it, so these are
// written first.
func (w *writing) apply(entries []Entry) error {
	start := 0
	for i := range entries {
		if entries[i].Op != OpDeletePrefix {
			continue
		}
		if err := w.applyPlain(entries[start:i]); err != nil {
			return err
		}
		if err := w.deletePrefix(&entries[i]); err != nil {
			return err
		}
		start = i + 1
	}
	return w.applyPlain(entries[start:])
}

func (w *writing) applyPlain(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	w.rows = make(map[string]*pendingRow, len(entries))
	w.order = make([]*pendingRow, 0, len(entries))
	targets := make([]*pendingRow, len(entries))
	for i := range entries {
		row, err := w.row(&entries[i])
		if err != nil {
			return err
		}
		targets[i] = row
	}
	// Stores keep rows in this order: neighbours are found and written together.
	slices.SortFunc(w.order, func(a, b *pendingRow) int { return a.key.Compare(b.key) })
	if err := w.load(); err != nil {
		return err
	}
	for i := range entries {
		w.change(targets[i], &entries[i])
	}
	return w.store()
}

// row finds or makes the pending row of an entry.
func (w *writing) row(e *Entry) (*pendingRow, error) {
	p, err := w.s.partOf(e.Group)
	if err != nil {
		return nil, err
	}
	state, err := w.s.state(e.State)
	if err != nil {
		return nil, err
	}
	number := state.numbers[p][0].number
	w.keyBuf = binary.BigEndian.AppendUint16(w.keyBuf[:0], e.Group)
	w.keyBuf = binary.BigEndian.AppendUint16(w.keyBuf, number)
	w.keyBuf = append(w.keyBuf, e.Key...)
	if known := w.rows[string(w.keyBuf)]; known != nil {
		return known, nil
	}
	row := &pendingRow{
		key:  store.RowKey{Space: w.s.record.Parts[p].Layers[0].Space, Group: e.Group, State: number, Key: e.Key},
		part: p,
	}
	w.rows[string(w.keyBuf)] = row
	w.order = append(w.order, row)
	return row, nil
}

// load reads what the rows hold.
func (w *writing) load() error {
	keys := make([]store.RowKey, len(w.order))
	for i, row := range w.order {
		keys[i] = row.key
	}
	raws, err := w.tx.Get(keys)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	for i, raw := range raws {
		if raw == nil {
			continue
		}
		row := w.order[i]
		row.existed = true
		if row.versions, err = decodeRow(raw, nil); err != nil {
			return fmt.Errorf("row of space %d, group %d, state %d: %w", row.key.Space, row.key.Group, row.key.State, err)
		}
	}
	return nil
}

func (w *writing) change(row *pendingRow, e *Entry) {
	switch e.Op {
	case OpPut:
		row.versions = put(row.versions, version{kindFull, w.at, e.Value})
	case OpDelete:
		row.versions = put(row.versions, version{kind: kindTombstone, stamp: w.at})
	case OpAppend:
		row.versions = appendTo(row.versions, w.at, e.Value)
	}
	w.deltaBytes += uint64(len(e.Key) + len(e.Value))
}

// store trims the changed rows and writes them.
func (w *writing) store() error {
	puts := make([]store.Row, 0, len(w.order))
	var deletes []store.RowKey
	limit := w.s.l.store.Limits().MaxValueBytes
	for _, row := range w.order {
		p := &w.s.record.Parts[row.part]
		views := w.s.views.of(w.s, row.part, row.key.Group)
		row.versions = trim(row.versions, views, p.bottom())
		if len(row.versions) == 0 {
			if row.existed {
				deletes = append(deletes, row.key)
			}
			continue
		}
		raw := encodeRow(row.versions)
		if len(raw) > limit {
			return fmt.Errorf("%w: a row would hold %d bytes with the versions that snapshots need, the store takes %d", ErrTooLarge, len(raw), limit)
		}
		puts = append(puts, store.Row{RowKey: row.key, Value: raw})
		if len(row.versions) > 1 || row.versions[0].kind == kindTombstone {
			w.surplus = append(w.surplus, row.key)
		}
	}
	w.deltaRows += uint64(len(w.order))
	if len(puts) > 0 {
		if err := w.tx.Put(puts); err != nil {
			return fmt.Errorf("write rows: %w", err)
		}
	}
	if len(deletes) > 0 {
		if err := w.tx.Delete(deletes); err != nil {
			return fmt.Errorf("delete rows: %w", err)
		}
	}
	return nil
}

// deletePrefix removes all visible rows below a prefix, page by page.
func (w *writing) deletePrefix(e *Entry) error {
	scan, err := newGroupScan(w.s.attached, txReader{w.tx}, e.State, e.Group, e.Key, nil)
	if err != nil {
		return err
	}
	scan.keysOnly = true
	for {
		var page []Entry
		for len(page) < pageRows {
			row, ok, err := scan.next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			page = append(page, Entry{State: e.State, Group: e.Group, Op: OpDelete, Key: row.Key})
		}
		if len(page) == 0 {
			return nil
		}
		if err := w.applyPlain(page); err != nil {
			return err
		}
	}
}

// viewCache remembers the retained views for the key groups of a session until the catalog changes.
type viewCache struct {
	version uint64
	groups  map[uint16][]History
}

// of returns the views of everybody else, and the session's own, on a key group's top row space.
func (c *viewCache) of(s *Session, partIndex int, group uint16) []History {
	version := s.l.catalog.currentVersion()
	if c.groups == nil || c.version != version {
		c.groups = map[uint16][]History{}
		c.version = version
	}
	views, ok := c.groups[group]
	if !ok {
		top := s.record.Parts[partIndex].Layers[0]
		views = append(s.l.catalog.views(top.Space, group, s.record.ID), top.History)
		c.groups[group] = views
	}
	return views
}
