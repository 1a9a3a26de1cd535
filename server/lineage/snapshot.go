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
		Spaces: spacesOf(r.Parts), Schema: r.Schema, States: r.States,
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
	return l.releaseIf(ctx, id, func(store.Tx, *snapshotRecord) (bool, error) { return true, nil })
}

// releaseIf releases a snapshot if a condition holds for its record as the store has it. The catalog may lag behind:
// a session may have been restored from the snapshot since, here or at another server. The gate keeps that out while
// the condition is asked.
func (l *Lineage) releaseIf(ctx context.Context, id string, condition func(store.Tx, *snapshotRecord) (bool, error)) (bool, error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	var released *snapshotRecord
	var counter uint64
	commit, err := l.store.Update(ctx, func(tx store.Tx) error {
		released = nil
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		record := &snapshotRecord{}
		found, err := readRecord(tx.Meta, snapshotKey(id), record)
		if err != nil || !found {
			return err
		}
		if holds, err := condition(tx, record); err != nil || !holds {
			return err
		}
		released = record
		if counter, err = readCounter(tx.Meta); err != nil {
			return err
		}
		return tx.DeleteMeta(snapshotKey(id))
	})
	if err != nil {
		return false, fmt.Errorf("release snapshot %s: %w", id, err)
	}
	if released == nil {
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
	for _, p := range released.Parts {
		l.garbage.endLayers(p.Range, p.Layers, 0)
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
