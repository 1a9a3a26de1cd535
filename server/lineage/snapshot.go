package lineage

import (
	"context"
	"fmt"
	"sort"

	"github.com/flinkndb/flinkndb/server/store"
)

func (r *snapshotRecord) info() SnapshotInfo {
	return SnapshotInfo{
		ID: r.ID, JobID: r.JobID, JobName: r.JobName, Operator: r.Operator, CheckpointID: r.CheckpointID,
		Kind: r.Kind, Created: r.Created, GroupCount: r.GroupCount, Range: r.Range, SessionID: r.Session,
		Generation: r.Session, Epoch: r.Epoch, Confirmed: r.Confirmed, Abandoned: r.Abandoned,
		Spaces: spacesOf(r.Parts), Schema: r.Schema,
	}
}

func spacesOf(parts []part) []uint64 {
	seen := map[uint64]bool{}
	var spaces []uint64
	for _, p := range parts {
		for _, l := range p.Layers {
			if !seen[l.Space] {
				seen[l.Space] = true
				spaces = append(spaces, l.Space)
			}
		}
	}
	sort.Slice(spaces, func(i, j int) bool { return spaces[i] < spaces[j] })
	return spaces
}

// Snapshot describes one snapshot.
func (l *Lineage) Snapshot(ctx context.Context, id string) (SnapshotInfo, error) {
	record, err := l.readSnapshot(ctx, id)
	if err != nil {
		return SnapshotInfo{}, err
	}
	return record.info(), nil
}

func (l *Lineage) readSnapshot(ctx context.Context, id string) (*snapshotRecord, error) {
	record := &snapshotRecord{}
	found, err := readRecord(storeMeta(ctx, l.store), snapshotKey(id), record)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: %s", ErrSnapshotNotFound, id)
	}
	return record, nil
}

// Release ends a snapshot. Releasing one that does not exist does nothing and returns false.
func (l *Lineage) Release(ctx context.Context, id string) (bool, error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	var existed bool
	var counter uint64
	commit, err := l.store.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		var err error
		if existed, err = readRecord(tx.Meta, snapshotKey(id), &snapshotRecord{}); err != nil || !existed {
			return err
		}
		if counter, err = readCounter(tx.Meta); err != nil {
			return err
		}
		return tx.DeleteMeta(snapshotKey(id))
	})
	if err != nil {
		return false, fmt.Errorf("release snapshot %s: %w", id, err)
	}
	if !existed {
		return false, nil
	}
	if err := commit.Wait(ctx); err != nil {
		return false, fmt.Errorf("release snapshot %s: %w", id, err)
	}
	if !l.catalog.forgetSnapshot(id, counter) {
		if err := l.catalog.refresh(ctx, l.store); err != nil {
			return true, fmt.Errorf("read the catalog: %w", err)
		}
	}
	l.garbage.wake()
	return true, nil
}

func (l *Lineage) releaseExports(ctx context.Context, session uint64) error {
	var ids []string
	l.catalog.mu.RLock()
	for _, s := range l.catalog.snapshots {
		if s.Session == session && s.Kind == SnapshotExport {
			ids = append(ids, s.ID)
		}
	}
	l.catalog.mu.RUnlock()
	for _, id := range ids {
		if _, err := l.Release(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Reader reads the rows that a snapshot sees, by key group, state and key. Close it.
type Reader struct {
	l      *Lineage
	record *snapshotRecord
	pin    *snapshotRecord
	states []StateInfo
	// numbers holds, for each state and part, its number in each layer's row space.
	numbers [][][]stateNumber

	groups Range
	group  int
	state  int
	scan   *groupScan
}

// OpenReader starts to read a snapshot; the range must lie within the snapshot's. While the reader is
// open this server keeps what it sees.
func (l *Lineage) OpenReader(ctx context.Context, id string, groups *Range) (*Reader, error) {
	record, err := l.readSnapshot(ctx, id)
	if err != nil {
		return nil, err
	}
	if groups == nil {
		groups = &record.Range
	}
	if groups.First > groups.Last || !groups.within(record.Range) {
		return nil, fmt.Errorf("%w: range is %d to %d, snapshot %s has %d to %d",
			ErrInvalid, groups.First, groups.Last, id, record.Range.First, record.Range.Last)
	}
	r := &Reader{l: l, record: record, groups: *groups, group: int(groups.First)}
	if err := r.buildStates(ctx); err != nil {
		return nil, err
	}
	if err := r.setPin(ctx); err != nil {
		return nil, err
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
		copied.ID, copied.Kind, copied.Created = fmt.Sprintf("%s%d", pinPrefix, number), SnapshotExport, r.l.opt.Now()
		copied.Session, copied.Schema = 0, nil
		pin = &copied
		return writeRecord(tx, snapshotKey(pin.ID), pin)
	})
	if err != nil {
		return fmt.Errorf("pin snapshot %s: %w", r.record.ID, err)
	}
	r.pin = pin
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

// Next returns some more rows; none at the end.
func (r *Reader) Next(ctx context.Context) ([]Entry, error) {
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
	}
	return rows, nil
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
			reader := storeReader{ctx, r.l.store}
			r.scan = layeredScan(reader, p.Layers, r.numbers[r.state][i], uint16(r.group), nil, nil, pageRows)
			return true
		}
	}
	r.scan = &groupScan{} // a key group that no part covers has no rows
	return true
}

// Close lets go of what the reader pinned.
func (r *Reader) Close(ctx context.Context) error {
	_, err := r.l.Release(ctx, r.pin.ID)
	return err
}
