package lineage

import (
	"context"
	"fmt"
	"sort"

	"github.com/flinkndb/flinkndb/server/store"
)

// Totals counts what there is, as this server knows it.
func (l *Lineage) Totals() Totals {
	l.catalog.mu.RLock()
	defer l.catalog.mu.RUnlock()
	totals := Totals{
		Spaces:         uint64(len(l.catalog.spaces)),
		Sessions:       uint64(len(l.catalog.sessions)),
		Snapshots:      uint64(len(l.catalog.snapshots)),
		FlattenedRows:  l.flattened.rows.Load(),
		FlattenedBytes: l.flattened.bytes.Load(),
	}
	for _, s := range l.catalog.sessions {
		totals.LayeredGroups += layeredGroups(s.Parts)
	}
	if c := l.rows; c != nil {
		rows, bytes := c.size()
		totals.CachedRows, totals.CachedBytes = uint64(rows), uint64(bytes)
		totals.CacheHits, totals.CacheMisses = c.hits.Load(), c.misses.Load()
	}
	return totals
}

// StoreName describes the store, without secrets.
func (l *Lineage) StoreName() string { return l.store.Name() }

// Limits are the sizes that the store takes.
func (l *Lineage) Limits() store.Limits {
	limits := l.store.Limits()
	limits.MaxValueBytes = min(limits.MaxValueBytes, l.opt.MaxValueBytes)
	return limits
}

// StoreBytes says what the store takes; 0 = not known.
func (l *Lineage) StoreBytes(ctx context.Context) (uint64, error) { return l.store.Bytes(ctx) }

// Sessions lists the live sessions.
func (l *Lineage) Sessions(ctx context.Context) ([]SessionInfo, error) {
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	l.catalog.mu.RLock()
	list := make([]SessionInfo, 0, len(l.catalog.sessions))
	for _, s := range l.catalog.sessions {
		list = append(list, SessionInfo{
			ID: s.ID, JobID: s.JobID, JobName: s.JobName, Operator: s.Operator, Attempt: s.Attempt,
			Range: s.Range, Generation: s.ID, LeaseExpires: l.opt.Now().Add(l.remaining(s)), Spaces: spacesOf(s.Parts),
		})
	}
	l.catalog.mu.RUnlock()
	sort.Slice(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	for i := range list {
		raw, err := l.store.Meta(ctx, laneKey(list[i].ID))
		if err != nil {
			return nil, fmt.Errorf("read session %d: %w", list[i].ID, err)
		}
		if raw == nil {
			continue
		}
		progress, err := decodeLane(raw)
		if err != nil {
			return nil, err
		}
		list[i].Epoch = progress.Epoch
		l.mu.Lock()
		a := l.live[list[i].ID]
		list[i].Attached = a != nil && a.streams > 0
		l.mu.Unlock()
	}
	return list, nil
}

// Snapshots lists the snapshots of a job, or of all ("").
func (l *Lineage) Snapshots(ctx context.Context, jobID string) ([]SnapshotInfo, error) {
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	l.catalog.mu.RLock()
	defer l.catalog.mu.RUnlock()
	var list []SnapshotInfo
	for _, s := range l.catalog.snapshots {
		if jobID == "" || s.JobID == jobID {
			info := s.info()
			info.Schema, info.States = nil, nil
			list = append(list, info)
		}
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Created.Equal(list[j].Created) {
			return list[i].ID < list[j].ID
		}
		return list[i].Created.Before(list[j].Created)
	})
	return list, nil
}

// Spaces lists the row spaces; count has rows and versions counted, which reads everything.
func (l *Lineage) Spaces(ctx context.Context, count bool) ([]SpaceInfo, error) {
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	l.catalog.mu.RLock()
	records := make([]*spaceRecord, 0, len(l.catalog.spaces))
	for _, s := range l.catalog.spaces {
		records = append(records, s)
	}
	l.catalog.mu.RUnlock()
	sort.Slice(records, func(i, j int) bool { return records[i].ID < records[j].ID })
	list := make([]SpaceInfo, 0, len(records))
	for _, s := range records {
		info := SpaceInfo{ID: s.ID, Created: s.Created, JobID: s.JobID, Operator: s.Operator, GroupCount: s.GroupCount, States: s.States}
		info.Sessions, info.Snapshots = l.catalog.usersOf(s.ID)
		var err error
		if info.Bytes, err = l.store.SpaceBytes(ctx, s.ID); err != nil {
			return nil, fmt.Errorf("size of row space %d: %w", s.ID, err)
		}
		if count {
			if err := l.count(ctx, s, &info); err != nil {
				return nil, fmt.Errorf("count row space %d: %w", s.ID, err)
			}
		}
		list = append(list, info)
	}
	return list, nil
}

func (c *catalog) usersOf(space uint64) (sessions, snapshots uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	uses := func(parts []part) bool { return viewSet{parts}.sees(space) }
	for _, s := range c.sessions {
		if uses(s.Parts) {
			sessions++
		}
	}
	for _, s := range c.snapshots {
		if uses(s.Parts) {
			snapshots++
		}
	}
	return sessions, snapshots
}

func (l *Lineage) count(ctx context.Context, space *spaceRecord, info *SpaceInfo) error {
	return l.eachPiece(ctx, space, func(keys []store.RowKey) ([]int, error) {
		raws, err := l.store.Get(ctx, keys)
		if err != nil {
			return nil, fmt.Errorf("read rows: %w", err)
		}
		for _, raw := range raws {
			if raw == nil {
				continue
			}
			versions, err := decodeRow(raw, nil)
			if err != nil {
				return nil, err
			}
			info.Rows++
			info.Versions += uint64(len(versions))
		}
		return rowSizes(raws), nil
	})
}
