package lineage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/flinkndb/flinkndb/server/store"
)

// Write applies the entries of one frame in one transaction, or in several when it clears large maps: see clearAhead. A
// seq that was applied before does nothing. The changes are visible on return; Durable tells when they are durable.
func (s *Session) Write(ctx context.Context, seq, epoch uint64, entries []Entry) error {
	s.writes.Lock()
	defer s.writes.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.checkEntries(entries); err != nil {
		return err
	}
	change := s.seen.change(entries)
	frame := &frameWrite{s: s, seq: seq, at: stamp{s.record.ID, epoch}}
	if err := frame.write(ctx, entries); err != nil {
		change.failed(s.stream == s.attachment.Load())
		return fmt.Errorf("write %d: %w", seq, err)
	}
	change.applied(frame.repeated)
	return nil
}

func (s *Session) checkEntries(entries []Entry) error {
	limits := s.l.Limits()
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
			return fmt.Errorf("%w: key of %d bytes in state %q, allowed are %d", ErrTooLarge, len(e.Key), state.name, limits.MaxKeyBytes)
		case len(e.Value) > limits.MaxValueBytes:
			return fmt.Errorf("%w: value of %d bytes in state %q, allowed are %d (--max-value-bytes)", ErrTooLarge, len(e.Value), state.name, limits.MaxValueBytes)
		}
	}
	return nil
}

// frameWrite is the writing of one frame.
type frameWrite struct {
	s   *Session
	seq uint64
	at  stamp

	repeated bool // it was applied before
}

// write applies the frame, in as many transactions as it takes.
func (f *frameWrite) write(ctx context.Context, entries []Entry) error {
	err := f.update(ctx, func(w *writing) error { return w.apply(entries) })
	if errors.Is(err, errLargeClear) {
		if err = f.clearAhead(ctx, entries); err == nil {
			err = f.update(ctx, func(w *writing) error {
				w.mayClearAll = true
				return w.apply(entries)
			})
		}
	}
	return err
}

// update applies something of the frame, or all, which then counts as applied, in one transaction.
func (f *frameWrite) update(ctx context.Context, apply func(*writing) error) error {
	var w *writing
	commit, err := f.s.l.store.Update(ctx, func(tx store.Tx) error {
		w = &writing{s: f.s, tx: tx, at: f.at}
		return w.run(f.seq, apply)
	})
	if w != nil { // even after a failure: it may have been committed, and a row that is not there is looked at in vain
		f.s.l.garbage.add(w.surplus)
		f.s.unsettled.add(f.at.Epoch, w.made)
	}
	if err != nil {
		return err
	}
	durable := f.seq
	if w.partial {
		durable-- // what comes before the frame is all that this commit speaks for
	}
	f.repeated = w.repeated
	f.s.commits.add(durable, commit)
	if w.renewed != nil {
		f.s.noteRenewed(w.renewed)
	}
	return nil
}

// writing is a transaction that writes a frame.
type writing struct {
	s  *Session
	tx store.Tx
	at stamp

	rows    []pendingRow
	keyBuf  []byte
	surplus []store.RowKey // rows left with something for the sweeper
	made    []store.RowKey // rows that only this epoch has

	repeated    bool // the frame was applied before
	partial     bool // the frame is not applied by this transaction
	mayClearAll bool // whatever is left below the prefixes: what this frame put there, after clearAhead
	cleared     clearedRows
	loadedBytes int
	renewed     *sessionRecord // nil if the lease was not due

	deltaRows  uint64
	deltaBytes uint64
}

// pendingRow is a row that the frame changes.
type pendingRow struct {
	key      store.RowKey
	part     int
	changes  []change // of this row, in their order
	existed  bool
	oldest   stamp // that it had, if it existed
	versions []version
	few      [2]version // what versions mostly is in
}

// change is an entry of the frame and the row that it belongs to.
type change struct {
	key   store.RowKey
	part  int
	entry int
}

func (w *writing) run(seq uint64, apply func(*writing) error) error {
	progress, err := w.s.lockProgress(w.tx)
	if err != nil {
		return err
	}
	if w.repeated = seq <= progress.Applied; w.repeated {
		return writeLane(w.tx, w.s.record.ID, progress) // durable when the frame is
	}
	if seq != progress.Applied+1 {
		return fmt.Errorf("%w: seq is %d, expected %d", ErrInvalid, seq, progress.Applied+1)
	}
	if w.at.Epoch < progress.Epoch || w.at.Epoch == 0 {
		return fmt.Errorf("%w: epoch is %d, at least %d is expected", ErrInvalid, w.at.Epoch, max(progress.Epoch, 1))
	}
	if err := apply(w); err != nil {
		return err
	}
	progress.Epoch = w.at.Epoch
	if !w.partial {
		progress.Applied = seq
	}
	progress.DeltaRows += w.deltaRows
	progress.DeltaBytes += w.deltaBytes
	// A long write keeps the lane from those who would renew the lease, so it does that itself.
	if w.s.renewalDue() {
		if w.renewed, err = w.s.writeRenewal(w.tx); err != nil {
			return err
		}
	}
	return writeLane(w.tx, w.s.record.ID, progress)
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
	if err := w.gather(entries); err != nil {
		return err
	}
	if err := w.load(); err != nil {
		return err
	}
	for i := range w.rows {
		for _, c := range w.rows[i].changes {
			w.change(&w.rows[i], &entries[c.entry])
		}
		if err := w.checkList(&w.rows[i], entries); err != nil {
			return err
		}
	}
	return w.store()
}

// gather sorts the entries by the rows that they change. Stores keep rows in this order: neighbours are found and
// written together.
func (w *writing) gather(entries []Entry) error {
	changes := make([]change, len(entries))
	for i := range entries {
		key, part, err := w.s.rowOf(&entries[i])
		if err != nil {
			return err
		}
		changes[i] = change{key, part, i}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.key.Compare(b.key), cmp.Compare(a.entry, b.entry)) })
	w.rows = make([]pendingRow, 0, len(changes))
	for start := 0; start < len(changes); {
		end := start + 1
		for end < len(changes) && changes[end].key.Compare(changes[start].key) == 0 {
			end++
		}
		w.rows = append(w.rows, pendingRow{key: changes[start].key, part: changes[start].part, changes: changes[start:end]})
		start = end
	}
	return nil
}

// rowOf finds the row of an entry in the session's top layer.
func (a *attached) rowOf(e *Entry) (key store.RowKey, part int, err error) {
	if part, err = a.partOf(e.Group); err != nil {
		return key, 0, err
	}
	state, err := a.state(e.State)
	if err != nil {
		return key, 0, err
	}
	number := state.numbers[part][0].number
	return store.RowKey{Space: a.parts[part].Layers[0].Space, Group: e.Group, State: number, Key: e.Key}, part, nil
}

// load reads what the rows hold.
func (w *writing) load() error {
	keys := make([]store.RowKey, 0, len(w.rows))
	asked := make([]*pendingRow, 0, len(w.rows))
	for i := range w.rows {
		row := &w.rows[i]
		row.versions = row.few[:0]
		if !w.isNew(row) {
			keys, asked = append(keys, row.key), append(asked, row)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	raws, err := w.tx.Get(keys)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	for i, raw := range raws {
		if raw == nil {
			continue
		}
		row := asked[i]
		row.existed = true
		w.loadedBytes += len(raw)
		if row.versions, err = decodeRow(raw, row.versions); err != nil {
			return fmt.Errorf("%s: %w", row.key.Name(), err)
		}
		if n := len(row.versions); n > 0 {
			row.oldest = row.versions[n-1].stamp
		}
	}
	return nil
}

// isNew says whether the store is known to have no such row, and notes that it has one from now on. When the
// transaction is tried again, rows are no longer new, which costs a look.
func (w *writing) isNew(row *pendingRow) bool {
	rows := w.s.newRows
	if rows == nil || rows.attachment != w.s.stream || !w.s.empty[row.part] {
		return false
	}
	w.keyBuf = binary.BigEndian.AppendUint16(w.keyBuf[:0], row.key.Group)
	w.keyBuf = binary.BigEndian.AppendUint16(w.keyBuf, row.key.State)
	w.keyBuf = append(w.keyBuf, row.key.Key...)
	exists, ok := rows.mayExist(w.keyBuf)
	if !ok {
		w.s.newRows = nil
	}
	return !exists
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

// checkList refuses appends that make a list larger than a value may be: it could not be read any more.
func (w *writing) checkList(row *pendingRow, entries []Entry) error {
	if !slices.ContainsFunc(row.changes, func(c change) bool { return entries[c.entry].Op == OpAppend }) {
		return nil // what was put has been checked
	}
	var r resolution
	r.add(row.versions, w.s.parts[row.part].Layers[0].History)
	limit := w.s.l.Limits().MaxValueBytes
	if size := r.size(); size > limit {
		state, err := w.s.state(entries[row.changes[0].entry].State)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: list of %d bytes in state %q, allowed are %d (--max-value-bytes)", ErrTooLarge, size, state.name, limit)
	}
	return nil
}

// store trims the changed rows and writes them.
func (w *writing) store() error {
	puts := make([]store.Row, 0, len(w.rows))
	var deletes []store.RowKey
	limit := w.s.l.store.Limits().MaxValueBytes
	encoded := make([]byte, 0, w.encodedSize()) // all rows, one behind the other
	for i := range w.rows {
		row := &w.rows[i]
		seen := w.s.views.of(w.s.attached, row.part, row.key.Group)
		row.versions = trim(row.versions, seen.views, seen.bottom)
		if len(row.versions) == 0 {
			if row.existed {
				deletes = append(deletes, row.key)
			}
			continue
		}
		start := len(encoded)
		encoded = appendRow(encoded, row.versions)
		raw := encoded[start:len(encoded):len(encoded)]
		if len(raw) > limit {
			return fmt.Errorf("%w: a row would hold %d bytes with the versions that snapshots need, the store takes %d", ErrTooLarge, len(raw), limit)
		}
		puts = append(puts, store.Row{RowKey: row.key, Value: raw})
		if len(row.versions) > 1 || row.versions[0].kind == kindTombstone {
			w.surplus = append(w.surplus, row.key)
		} else if row.versions[0].stamp == w.at && row.oldest != w.at {
			if w.made == nil {
				w.made = make([]store.RowKey, 0, len(w.rows)-i)
			}
			w.made = append(w.made, row.key)
		}
	}
	w.deltaRows += uint64(len(w.rows))
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

// encodedSize is an upper bound of what the rows will take.
func (w *writing) encodedSize() (size int) {
	for i := range w.rows {
		size += encodedSize(w.rows[i].versions)
	}
	return size
}

// viewCache remembers the retained views for the key groups of a session until the catalog changes.
type viewCache struct {
	version uint64
	groups  map[uint16]groupViews
}

// of returns the views of everybody else, and the session's own, on a key group's top row space.
func (c *viewCache) of(a *attached, partIndex int, group uint16) groupViews {
	version := a.l.catalog.currentVersion()
	if c.groups == nil || c.version != version {
		c.groups = map[uint16]groupViews{}
		c.version = version
	}
	seen, ok := c.groups[group]
	if !ok {
		p := a.parts[partIndex]
		seen = a.l.catalog.views(p.Layers[0].Space, group, a.record.ID)
		seen.views = append(seen.views, p.Layers[0].History)
		seen.bottom = seen.bottom && p.bottom()
		c.groups[group] = seen
	}
	return seen
}
