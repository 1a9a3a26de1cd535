package lineage

import (
	"context"
	"fmt"

	"github.com/flinkndb/flinkndb/server/store"
)

// ReadRequest asks for the rows of a snapshot.
type ReadRequest struct {
	SnapshotID string
	Range      *Range // nil = all key groups of the snapshot
	// GroupsOnly asks for one row, without its value, of each key group that has any.
	GroupsOnly bool
}

// Reader reads the rows that a snapshot sees, by key group, state and key. Close it.
type Reader struct {
	l       *Lineage
	request ReadRequest
	record  *snapshotRecord
	pin     *snapshotRecord // nil where the snapshot itself must stay
	states  []StateInfo
	// numbers holds, for each state and part, its number in each layer's row space.
	numbers [][][]stateNumber

	groups Range
	group  int
	state  int
	scan   *groupScan
}

// OpenReader starts to read a snapshot; the range must lie within the snapshot's. While the reader is
// open this server keeps what it sees, except where only groups are asked for: that takes too short to
// be worth it.
func (l *Lineage) OpenReader(ctx context.Context, request ReadRequest) (*Reader, error) {
	record, err := l.readSnapshot(ctx, request.SnapshotID)
	if err != nil {
		return nil, err
	}
	groups := record.Range
	if request.Range != nil {
		groups = *request.Range
	}
	if groups.First > groups.Last || !groups.within(record.Range) {
		return nil, fmt.Errorf("%w: range is %d to %d, snapshot %s has %d to %d",
			ErrInvalid, groups.First, groups.Last, record.ID, record.Range.First, record.Range.Last)
	}
	r := &Reader{l: l, request: request, record: record, groups: groups, group: int(groups.First)}
	if err := r.buildStates(ctx); err != nil {
		return nil, err
	}
	if !request.GroupsOnly {
		if err := r.setPin(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// setPin protects what the reader sees by a snapshot record of its own, so that the snapshot itself may
// be released meanwhile. The sweeper releases pins of servers that died.
func (r *Reader) setPin(ctx context.Context) error {
	var pin *snapshotRecord
	var number uint64
	r.l.structure.Lock()
	defer r.l.structure.Unlock()
	_, err := r.l.store.Update(ctx, func(tx store.Tx) error {
		var err error
		if number, err = nextNumbers(tx, 1); err != nil {
			return err
		}
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		known, err := tx.Meta(snapshotKey(r.record.ID))
		if err != nil {
			return err
		}
		if known == nil {
			return fmt.Errorf("%w: %s", ErrSnapshotNotFound, r.record.ID)
		}
		copied := *r.record
		copied.ID, copied.Kind, copied.Created = fmt.Sprintf("%s%d", pinPrefix, number), SnapshotExport, r.l.steadyNow()
		copied.Session, copied.Schema, copied.States = 0, nil, nil
		pin = &copied
		return writeRecord(tx, snapshotKey(pin.ID), pin)
	})
	if err != nil {
		return fmt.Errorf("pin snapshot %s: %w", r.record.ID, err)
	}
	r.pin = pin
	r.l.mu.Lock()
	r.l.pins[pin.ID] = true
	r.l.mu.Unlock()
	r.l.catalog.change(func() {
		r.l.catalog.took(number, 1)
		r.l.catalog.snapshots[pin.ID] = pin
	})
	return nil
}

// buildStates makes the table of all states in the snapshot's row spaces.
func (r *Reader) buildStates(ctx context.Context) error {
	var err error
	if r.states, err = r.l.statesIn(ctx, spacesOf(r.record.Parts)); err != nil {
		return err
	}
	for _, s := range r.states {
		var perPart [][]stateNumber
		for _, p := range r.record.Parts {
			numbers, err := r.l.numbersIn(ctx, p.Layers, s)
			if err != nil {
				return err
			}
			perPart = append(perPart, numbers)
		}
		r.numbers = append(r.numbers, perPart)
	}
	return nil
}

// Info describes the snapshot.
func (r *Reader) Info() SnapshotInfo { return r.record.info() }

// States lists the states; Entry.State of Next is an index into it.
func (r *Reader) States() []StateInfo { return r.states }

// Next returns some more rows; none at the end. What it returns is whole: when what protects the rows
// went away meanwhile, it fails.
func (r *Reader) Next(ctx context.Context) ([]Entry, error) {
	rows, err := r.page(ctx)
	if err != nil {
		return nil, err
	}
	return rows, r.verify(ctx)
}

func (r *Reader) page(ctx context.Context) ([]Entry, error) {
	var rows []Entry
	size := 0
	for len(rows) < pageRows && size < pageBytes {
		if r.scan == nil && !r.openScan(ctx) {
			return rows, nil
		}
		row, ok, err := r.scan.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			r.scan = nil
			r.state++
			continue
		}
		rows = append(rows, Entry{State: uint16(r.state), Group: row.Group, Op: OpPut, Key: row.Key, Value: row.Value})
		size += len(row.Key) + len(row.Value)
		if r.request.GroupsOnly {
			r.scan, r.state = nil, len(r.states) // on to the next key group
		}
	}
	return rows, nil
}

// verify demands that the record which protects the rows is still there: then it was all the time.
func (r *Reader) verify(ctx context.Context) error {
	id := r.record.ID
	if r.pin != nil {
		id = r.pin.ID
	}
	raw, err := r.l.store.Meta(ctx, snapshotKey(id))
	if err != nil {
		return fmt.Errorf("read %s: %w", snapshotKey(id), err)
	}
	if raw == nil {
		return fmt.Errorf("%w: %s was released while snapshot %s was read", ErrSnapshotNotFound, id, r.record.ID)
	}
	return nil
}

// openScan starts on the current state and key group; false when all are done.
func (r *Reader) openScan(ctx context.Context) bool {
	if r.state >= len(r.states) {
		r.state = 0
		r.group++
	}
	if len(r.states) == 0 || r.group > int(r.groups.Last) {
		return false
	}
	for i, p := range r.record.Parts {
		if p.contains(uint16(r.group)) {
			firstPage := pageRows
			if r.request.GroupsOnly {
				firstPage = mergePageRows
			}
			r.scan = layeredScan(storeReader{ctx, r.l.store}, p.Layers, r.numbers[r.state][i], uint16(r.group), nil, nil, firstPage)
			r.scan.keysOnly = r.request.GroupsOnly
			return true
		}
	}
	r.scan = &groupScan{} // a key group that no part covers has no rows
	return true
}

// pinnedHere says whether a pin is that of a reader which is open at this server.
func (l *Lineage) pinnedHere(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pins[id]
}

// Close lets go of what the reader pinned.
func (r *Reader) Close(ctx context.Context) error {
	if r.pin == nil {
		return nil
	}
	r.l.mu.Lock()
	delete(r.l.pins, r.pin.ID)
	r.l.mu.Unlock()
	_, err := r.l.Release(ctx, r.pin.ID)
	return err
}
