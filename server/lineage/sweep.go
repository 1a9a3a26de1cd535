package lineage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// sweep trims rows: those remembered, or all. A row space where this fails does not keep the others from being swept.
// What was remembered and not swept is remembered again, also that of others when the context ends.
func (l *Lineage) sweep(ctx context.Context, everything bool, began time.Duration, report *GarbageReport) error {
	taken, whole := l.garbage.take(began)
	todo := taken
	if everything || whole {
		todo = l.catalog.wholeSpaces()
	}
	var failed []error
	for id, g := range todo {
		err := ctx.Err()
		if err == nil {
			err = l.sweepSpace(ctx, id, g, report)
		}
		if err == nil {
			continue
		}
		if whole {
			l.garbage.sweepAll(id)
		} else {
			l.garbage.giveBack(id, taken[id])
		}
		if ctx.Err() == nil || len(failed) == 0 { // that the context has ended is said once
			failed = append(failed, fmt.Errorf("sweep row space %d: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

// wholeSpaces is all rows of all row spaces.
func (c *catalog) wholeSpaces() map[uint64]*spaceGarbage {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := map[uint64]*spaceGarbage{}
	for id := range c.spaces {
		all[id] = &spaceGarbage{all: true}
	}
	return all
}

func (l *Lineage) sweepSpace(ctx context.Context, id uint64, g *spaceGarbage, report *GarbageReport) error {
	l.catalog.mu.RLock()
	space := l.catalog.spaces[id]
	l.catalog.mu.RUnlock()
	if space == nil {
		return nil
	}
	sweepRows := func(rows []store.RowKey) ([]int, error) { return l.sweepRows(ctx, rows, report) }
	if g.all {
		return l.eachPiece(ctx, space, sweepRows)
	}
	pieces := newPieces()
	groups := map[uint16][]store.RowKey{}
	for _, row := range g.rows {
		groups[row.Group] = append(groups[row.Group], row)
	}
	for _, rows := range groups {
		if err := pieces.each(rows, sweepRows); err != nil {
			return err
		}
	}
	return nil
}

// eachPiece walks the rows of a row space, in pieces of one key group. fn returns the sizes of the rows that it read.
func (l *Lineage) eachPiece(ctx context.Context, space *spaceRecord, fn func([]store.RowKey) ([]int, error)) error {
	pieces := newPieces()
	return l.eachRow(ctx, space, func(rows []store.RowKey) error { return pieces.each(rows, fn) })
}

// eachRow walks the keys of a row space, in batches of one key group.
func (l *Lineage) eachRow(ctx context.Context, space *spaceRecord, fn func([]store.RowKey) error) error {
	for group := uint32(0); group < space.GroupCount; group++ {
		for _, state := range space.States {
			query := store.Range{Space: space.ID, Group: uint16(group), State: state.Number, MaxRows: sweepBatch, KeysOnly: true}
			for {
				page, err := l.store.Scan(ctx, query)
				if err != nil {
					return fmt.Errorf("scan group %d: %w", group, err)
				}
				if len(page.Rows) > 0 {
					keys := make([]store.RowKey, len(page.Rows))
					for i := range page.Rows {
						keys[i] = page.Rows[i].RowKey
					}
					if err := fn(keys); err != nil {
						return err
					}
					query.After = keys[len(keys)-1].Key
				}
				if page.Done {
					break
				}
			}
		}
	}
	return nil
}

// sweepRows trims some rows of one key group. Whoever could write them or make a view of them is kept
// out, at whatever server: the writing session by its lane, everybody else by the gate. The views are
// read under these locks, so they are all there are. It returns the sizes that the rows had.
func (l *Lineage) sweepRows(ctx context.Context, rows []store.RowKey, report *GarbageReport) ([]int, error) {
	space, group := rows[0].Space, rows[0].Group
	var s *sweeping
	_, err := l.store.Update(ctx, func(tx store.Tx) error {
		s = &sweeping{tx: tx}
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		owner, err := writerOf(tx, space, group)
		if err != nil {
			return err
		}
		if owner != 0 {
			if _, err := tx.LockMeta(laneKey(owner)); err != nil {
				return fmt.Errorf("lock the lane of session %d: %w", owner, err)
			}
		}
		views, err := readViews(tx)
		if err != nil {
			return err
		}
		return s.run(rows, views)
	})
	if err != nil {
		return nil, err
	}
	report.ScannedRows += uint64(len(rows))
	report.RemovedRows += s.removedRows
	report.RemovedVersions += s.removedVersions
	l.garbage.add(s.surplus)
	return s.sizes, nil
}

// writerOf finds the live session that writes a key group of a row space; 0 when there is none.
func writerOf(tx store.Tx, space uint64, group uint16) (uint64, error) {
	metas, err := tx.ScanMeta(sessionPrefix)
	if err != nil {
		return 0, fmt.Errorf("read the sessions: %w", err)
	}
	for _, m := range metas {
		record := &sessionRecord{}
		if err := json.Unmarshal(m.Value, record); err != nil {
			return 0, fmt.Errorf("record %s: %w", m.Key, err)
		}
		if record.writes(space, Range{group, group}) {
			return record.ID, nil
		}
	}
	return 0, nil
}

// sweeping is the transaction that trims some rows.
type sweeping struct {
	tx              store.Tx
	removedRows     uint64
	removedVersions uint64
	surplus         []store.RowKey
	sizes           []int // of the rows before
}

func (s *sweeping) run(rows []store.RowKey, all viewSet) error {
	seen := all.of(rows[0].Space, rows[0].Group)
	raws, err := s.tx.Get(rows)
	if err != nil {
		return fmt.Errorf("read rows: %w", err)
	}
	s.sizes = rowSizes(raws)
	var puts []store.Row
	var deletes []store.RowKey
	for i, raw := range raws {
		if raw == nil {
			continue
		}
		versions, err := decodeRow(raw, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", rows[i].Name(), err)
		}
		before := len(versions)
		versions = trim(versions, seen.views, seen.bottom)
		s.removedVersions += uint64(before - len(versions))
		switch {
		case len(versions) == 0:
			s.removedRows++
			deletes = append(deletes, rows[i])
			continue
		case len(versions) < before:
			puts = append(puts, store.Row{RowKey: rows[i], Value: encodeRow(versions)})
		}
		if len(versions) > 1 || versions[0].kind == kindTombstone {
			s.surplus = append(s.surplus, rows[i])
		}
	}
	if len(puts) > 0 {
		if err := s.tx.Put(puts); err != nil {
			return fmt.Errorf("write rows: %w", err)
		}
	}
	if len(deletes) > 0 {
		if err := s.tx.Delete(deletes); err != nil {
			return fmt.Errorf("delete rows: %w", err)
		}
	}
	return nil
}

// check counts what a collection would remove.
func (l *Lineage) check(ctx context.Context) (GarbageReport, error) {
	var report GarbageReport
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return report, fmt.Errorf("read the catalog: %w", err)
	}
	left := l.catalogWithoutExpired(&report)
	report.DroppedSpaces = uint64(len(left.unseenSpaces()))
	for _, space := range left.spaces {
		err := l.eachPiece(ctx, space, func(keys []store.RowKey) ([]int, error) { return l.checkRows(ctx, left, keys, &report) })
		if err != nil {
			return report, fmt.Errorf("check row space %d: %w", space.ID, err)
		}
	}
	return report, nil
}

// catalogWithoutExpired is what the catalog would show once a collection has ended the sessions that have expired and
// released the snapshots that are overdue then, exports of these sessions among them.
func (l *Lineage) catalogWithoutExpired(report *GarbageReport) *catalog {
	expired := l.expiredSessions()
	l.catalog.mu.RLock()
	defer l.catalog.mu.RUnlock()
	left := &catalog{
		sessions: maps.Clone(l.catalog.sessions), snapshots: maps.Clone(l.catalog.snapshots), spaces: maps.Clone(l.catalog.spaces),
	}
	for _, s := range expired {
		delete(left.sessions, s.ID)
	}
	overdue := l.overdueSnapshots(left)
	for _, id := range overdue {
		delete(left.snapshots, id)
	}
	report.ExpiredSessions, report.ReleasedSnapshots = uint64(len(expired)), uint64(len(overdue))
	return left
}

func (l *Lineage) checkRows(ctx context.Context, left *catalog, keys []store.RowKey, report *GarbageReport) ([]int, error) {
	raws, err := l.store.Get(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	seen := left.views(keys[0].Space, keys[0].Group, 0)
	for _, raw := range raws {
		if raw == nil {
			continue
		}
		versions, err := decodeRow(raw, nil)
		if err != nil {
			return nil, err
		}
		before := len(versions)
		after := len(trim(versions, seen.views, seen.bottom))
		report.ScannedRows++
		report.RemovedVersions += uint64(before - after)
		if after == 0 {
			report.RemovedRows++
		}
	}
	return rowSizes(raws), nil
}
