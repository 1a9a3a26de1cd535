package lineage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// maxGroups is the largest number of key groups: Flink keeps the sign bit for itself.
const maxGroups = 32768

// Lineage gives rows their versions. All methods may be called concurrently.
type Lineage struct {
	store   store.Store
	opt     Options
	started time.Time
	catalog *catalog
	garbage *garbage
	leases  *leaseWatch
	filters filterBudget
	rows    *rowCache // nil if there is none
	// unsettled bounds the rows that sessions have made and no confirmed snapshot has.
	unsettled rowBudget
	// clearAtOnce bounds what one transaction removes for the clearing of maps.
	clearAtOnce clearedRows

	flattened flattenedTotals

	// structure is held by whatever opens or ends sessions or releases snapshots, until the catalog
	// shows it: nobody may find a view that has left one record and not yet reached the other.
	structure sync.Mutex

	mu   sync.Mutex
	live map[uint64]*attached // sessions that have had a stream at this server
	pins map[string]bool      // of readers that are open at this server
}

// New opens the lineage layer over a store and reads what sessions and snapshots there are.
func New(ctx context.Context, st store.Store, opt Options) (*Lineage, error) {
	opt = opt.withDefaults()
	l := &Lineage{
		store:   st,
		opt:     opt,
		started: opt.Now().Round(0).Add(-opt.Elapsed()), // Round: without the monotonic clock
		catalog: newCatalog(),
		leases:  newLeaseWatch(opt.Elapsed),
		pins:    map[string]bool{},
		garbage: newGarbage(opt.MaxGarbageKeys),
		live:    map[uint64]*attached{},
		filters: filterBudget{limit: opt.MaxFilterBytes},

		unsettled: rowBudget{limit: int64(opt.MaxGarbageKeys)},

		clearAtOnce: clearedRows{clearRows, clearBytes},
	}
	if opt.RowCacheBytes > 0 {
		l.rows = newRowCache(opt.RowCacheBytes)
	}
	if err := l.catalog.refresh(ctx, st); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	// What an earlier server remembered for its sweeper is gone with it.
	l.garbage.sweepEverything()
	return l, nil
}

// Open opens a session, fences the older ones of the same job on its key groups, and returns it. A
// repeated call with the same token returns the same session.
func (l *Lineage) Open(ctx context.Context, r OpenRequest) (OpenResult, error) {
	if err := r.validate(); err != nil {
		return OpenResult{}, err
	}
	l.structure.Lock()
	defer l.structure.Unlock()
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return OpenResult{}, fmt.Errorf("read the catalog: %w", err)
	}
	var o *opening
	commit, err := l.store.Update(ctx, func(tx store.Tx) error {
		o = &opening{l: l, tx: tx, request: r}
		return o.run()
	})
	if err != nil {
		return OpenResult{}, fmt.Errorf("open a session: %w", err)
	}
	l.noteFenced(o.fenced) // before the new session can write, and even if its client does not wait
	if err := commit.Wait(ctx); err != nil {
		return OpenResult{}, fmt.Errorf("open a session: %w", err)
	}
	if !o.repeated { // else the record may be newer in the catalog
		l.catalog.change(o.apply)
	}
	return o.result, nil
}

// noteFenced has fenced sessions read no more at this server.
func (l *Lineage) noteFenced(ids []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if a := l.live[id]; a != nil {
			a.fenced.Store(true)
		}
	}
}

func (r *OpenRequest) validate() error {
	if err := checkName("session_token", r.Token, maxID); err != nil {
		return err
	}
	switch {
	case r.GroupCount == 0 || r.GroupCount > maxGroups:
		return fmt.Errorf("%w: key_group_count is %d, allowed are 1 to %d", ErrInvalid, r.GroupCount, maxGroups)
	case r.Range.First > r.Range.Last || uint32(r.Range.Last) >= r.GroupCount:
		return fmt.Errorf("%w: range is %d to %d, must lie within 0 to %d", ErrInvalid, r.Range.First, r.Range.Last, r.GroupCount-1)
	case r.Lease < 0:
		return fmt.Errorf("%w: lease is negative", ErrInvalid)
	}
	sort.Slice(r.Bases, func(i, j int) bool { return r.Bases[i].Range.First < r.Bases[j].Range.First })
	for i, b := range r.Bases {
		if b.Range.First > b.Range.Last || !b.Range.within(r.Range) {
			return fmt.Errorf("%w: bases[%d].range is %d to %d, must lie within %d to %d",
				ErrInvalid, i, b.Range.First, b.Range.Last, r.Range.First, r.Range.Last)
		}
		if i > 0 && r.Bases[i-1].Range.Last >= b.Range.First {
			return fmt.Errorf("%w: bases overlap at key group %d", ErrInvalid, b.Range.First)
		}
	}
	return nil
}

// opening is the transaction that opens a session.
type opening struct {
	l       *Lineage
	tx      store.Tx
	request OpenRequest

	sessions  []*sessionRecord
	record    *sessionRecord
	spaces    []*spaceRecord // created
	origins   []part         // what the bases show, before any fork
	fenced    []uint64
	snapshots []*snapshotRecord // changed
	others    []*snapshotRecord // as they were once those to be fenced could take no more
	repeated  bool
	result    OpenResult
}

func (o *opening) run() error {
	// A client whose call took too long repeats it, perhaps at another server: only one of them is to open the session.
	if _, err := o.tx.LockMeta(counterKey); err != nil {
		return fmt.Errorf("lock %s: %w", counterKey, err)
	}
	if known, err := o.repeat(); known || err != nil {
		o.repeated = known
		return err
	}
	id, err := nextNumbers(o.tx, 1)
	if err != nil {
		return err
	}
	if _, err := o.tx.LockMeta(gateKey); err != nil {
		return fmt.Errorf("lock %s: %w", gateKey, err)
	}
	if err := o.readSessions(); err != nil {
		return err
	}
	o.record = &sessionRecord{
		ID: id, Token: o.request.Token, JobID: o.request.JobID, JobName: o.request.JobName,
		Operator: o.request.Operator, Attempt: o.request.Attempt, GroupCount: o.request.GroupCount,
		Range: o.request.Range, Lease: o.request.Lease, Renewed: o.l.opt.Now(), Empty: true, Bases: o.request.Bases,
	}
	if o.record.Lease == 0 {
		o.record.Lease = o.l.opt.Lease
	}
	if err := o.layParts(); err != nil {
		return err
	}
	if err := o.fenceOlder(); err != nil {
		return err
	}
	return o.write()
}

// repeat answers an open that was done before.
func (o *opening) repeat() (bool, error) {
	var id uint64
	found, err := readRecord(o.tx.Meta, tokenKey(o.request.Token), &id)
	if err != nil || !found {
		return false, err
	}
	record := &sessionRecord{}
	found, err = readRecord(o.tx.Meta, sessionKey(id), record)
	if err != nil {
		return false, err
	}
	if !found {
		return false, fmt.Errorf("%w: session %d of this token has ended", ErrSessionNotFound, id)
	}
	o.record = record
	o.answer(nil)
	for i, b := range record.Bases {
		s := &snapshotRecord{}
		if _, err := readRecord(o.tx.Meta, snapshotKey(b.SnapshotID), s); err != nil {
			return false, err
		}
		o.result.BaseSchemas[i] = s.Schema
	}
	return true, nil
}

func (o *opening) readSessions() error {
	metas, err := o.tx.ScanMeta(sessionPrefix)
	if err != nil {
		return fmt.Errorf("read the sessions: %w", err)
	}
	for _, m := range metas {
		record := &sessionRecord{}
		if _, err := readRecord(func(string) ([]byte, error) { return m.Value, nil }, m.Key, record); err != nil {
			return err
		}
		o.sessions = append(o.sessions, record)
	}
	return nil
}

// layParts decides for each key group what the session sees: the layers of its base, taken over or
// put under a row space of its own, or an empty row space.
func (o *opening) layParts() error {
	var fresh, forked uint64
	schemas := make([][]byte, len(o.request.Bases))
	next := int(o.request.Range.First)
	empty := func(upTo int) error {
		if next > upTo {
			return nil
		}
		space, err := o.space(&fresh)
		if err != nil {
			return err
		}
		o.addPart(Range{uint16(next), uint16(upTo)}, []layer{{Space: space}})
		return nil
	}
	for i, base := range o.request.Bases {
		if err := empty(int(base.Range.First) - 1); err != nil {
			return err
		}
		schema, err := o.restore(base, &forked)
		if err != nil {
			return err
		}
		schemas[i] = schema
		next = int(base.Range.Last) + 1
	}
	if err := empty(int(o.request.Range.Last)); err != nil {
		return err
	}
	o.answer(schemas)
	return nil
}

// restore lays the parts of one base.
func (o *opening) restore(base Base, forked *uint64) ([]byte, error) {
	snapshot := &snapshotRecord{}
	found, err := readRecord(o.tx.Meta, snapshotKey(base.SnapshotID), snapshot)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: %s. It was released, or is in another store; if the database lost its newest transactions "+
			"(all NDB data nodes died at once, with durability=replicated), restore the checkpoint before it", ErrSnapshotNotFound, base.SnapshotID)
	}
	if snapshot.GroupCount != o.request.GroupCount {
		return nil, fmt.Errorf("%w: key_group_count (maximum parallelism) is %d, snapshot %s has %d",
			ErrInvalid, o.request.GroupCount, snapshot.ID, snapshot.GroupCount)
	}
	if !base.Range.within(snapshot.Range) {
		return nil, fmt.Errorf("%w: base range %d to %d is not within that of snapshot %s, %d to %d", ErrInvalid,
			base.Range.First, base.Range.Last, snapshot.ID, snapshot.Range.First, snapshot.Range.Last)
	}
	if !snapshot.Confirmed || !snapshot.Abandoned.IsZero() {
		snapshot.Confirmed, snapshot.Abandoned = true, time.Time{}
		o.snapshots = append(o.snapshots, snapshot)
	}
	for _, p := range snapshot.Parts {
		if !p.overlaps(base.Range) {
			continue
		}
		groups := Range{max(p.First, base.Range.First), min(p.Last, base.Range.Last)}
		layers := append([]layer(nil), p.Layers...)
		o.origins = append(o.origins, part{groups, layers})
		if o.usedByOther(layers[0].Space, groups) {
			space, err := o.space(forked)
			if err != nil {
				return nil, err
			}
			layers = append([]layer{{Space: space}}, layers...)
		}
		o.record.Empty = false
		o.addPart(groups, layers)
	}
	return snapshot.Schema, nil
}

// usedByOther says whether a live session of another job writes these key groups of the space.
func (o *opening) usedByOther(space uint64, groups Range) bool {
	for _, s := range o.sessions {
		if s.JobID != o.request.JobID && s.writes(space, groups) && !o.l.expired(s) {
			return true
		}
	}
	return false
}

func (s *sessionRecord) writes(space uint64, groups Range) bool {
	for _, p := range s.Parts {
		if p.Layers[0].Space == space && p.overlaps(groups) {
			return true
		}
	}
	return false
}

// space returns the row space in *id, which is made at its first use.
func (o *opening) space(id *uint64) (uint64, error) {
	if *id != 0 {
		return *id, nil
	}
	number, err := nextNumbers(o.tx, 1)
	if err != nil {
		return 0, err
	}
	*id = number
	o.spaces = append(o.spaces, &spaceRecord{
		ID: number, Created: o.l.opt.Now(), JobID: o.request.JobID, Operator: o.request.Operator,
		GroupCount: o.request.GroupCount,
	})
	return number, nil
}

// addPart adds key groups whose top layer the session continues in its own generation.
func (o *opening) addPart(groups Range, layers []layer) {
	layers[0].History = layers[0].History.with(Span{Gen: o.record.ID, Last: math.MaxUint64})
	o.record.Parts = append(o.record.Parts, part{groups, layers})
}

// fenceOlder ends the sessions whose place the new one takes.
func (o *opening) fenceOlder() error {
	sort.Slice(o.sessions, func(i, j int) bool { return o.sessions[i].ID < o.sessions[j].ID })
	for _, s := range o.sessions {
		if !o.takesPlaceOf(s) {
			continue
		}
		raw, err := o.tx.LockMeta(laneKey(s.ID))
		if err != nil {
			return fmt.Errorf("lock session %d: %w", s.ID, err)
		}
		if raw == nil {
			continue
		}
		old, err := decodeLane(raw)
		if err != nil {
			return err
		}
		old.Fenced = true
		if err := writeLane(o.tx, s.ID, old); err != nil {
			return err
		}
		if err := endSession(o.tx, s); err != nil {
			return err
		}
		o.fenced = append(o.fenced, s.ID)
	}
	return o.abandon()
}

func (o *opening) takesPlaceOf(s *sessionRecord) bool {
	for _, p := range o.record.Parts {
		if s.writes(p.Layers[0].Space, p.Range) {
			return true
		}
	}
	if s.JobID != o.request.JobID {
		return false
	}
	// An older attempt of the same task ends even if the new one cannot have its row space.
	for _, p := range o.origins {
		if s.writes(p.Layers[0].Space, p.Range) {
			return true
		}
	}
	return false
}

// abandon marks checkpoints of this job that the restored state goes back behind: Flink restores the
// latest completed checkpoint, so those never completed. This says nothing about savepoints, to which Flink
// never goes back by itself: they are their user's.
func (o *opening) abandon() error {
	metas, err := o.tx.ScanMeta(snapshotPrefix)
	if err != nil {
		return fmt.Errorf("read the snapshots: %w", err)
	}
	for _, m := range metas {
		s := &snapshotRecord{}
		if _, err := readRecord(func(string) ([]byte, error) { return m.Value, nil }, m.Key, s); err != nil {
			return err
		}
		if s.JobID != o.request.JobID || s.Kind == SnapshotSavepoint || s.Confirmed || !s.Abandoned.IsZero() || !o.passedBy(s) {
			o.others = append(o.others, s)
			continue
		}
		s.Abandoned = o.l.steadyNow()
		o.snapshots = append(o.snapshots, s)
	}
	return nil
}

// passedBy says whether the session writes where the snapshot was taken, but does not see all of it.
func (o *opening) passedBy(s *snapshotRecord) bool {
	for _, base := range o.request.Bases {
		if base.SnapshotID == s.ID {
			return false
		}
	}
	for _, old := range s.Parts {
		for _, p := range o.record.Parts {
			top := old.Layers[0]
			if p.Layers[0].Space != top.Space || !p.overlaps(old.Range) {
				continue
			}
			newest := top.History[len(top.History)-1]
			if !p.Layers[0].History.sees(stamp{newest.Gen, newest.Last}) {
				return true
			}
		}
	}
	return false
}

func (o *opening) write() error {
	for _, s := range o.spaces {
		if err := writeRecord(o.tx, spaceKey(s.ID), s); err != nil {
			return err
		}
	}
	for _, s := range o.snapshots {
		if err := writeRecord(o.tx, snapshotKey(s.ID), s); err != nil {
			return err
		}
	}
	if err := writeLane(o.tx, o.record.ID, lane{}); err != nil {
		return err
	}
	if err := writeRecord(o.tx, sessionKey(o.record.ID), o.record); err != nil {
		return err
	}
	return writeRecord(o.tx, tokenKey(o.record.Token), o.record.ID)
}

func (o *opening) answer(schemas [][]byte) {
	if schemas == nil {
		schemas = make([][]byte, len(o.record.Bases))
	}
	o.result = OpenResult{
		SessionID: o.record.ID, Generation: o.record.ID, Empty: o.record.Empty,
		BaseSchemas: schemas, Lease: o.record.Lease,
	}
}

// apply brings the catalog up to date after the commit.
func (o *opening) apply() {
	c := o.l.catalog
	for _, s := range o.spaces {
		c.spaces[s.ID] = s
	}
	// What is fenced may just have taken snapshots at another server.
	for _, s := range o.others {
		if c.snapshots[s.ID] == nil {
			c.snapshots[s.ID] = s
		}
	}
	for _, s := range o.snapshots {
		c.snapshots[s.ID] = s
	}
	for _, id := range o.fenced {
		delete(c.sessions, id)
	}
	c.took(o.record.ID, uint64(1+len(o.spaces)))
	c.sessions[o.record.ID] = o.record
}

// endSession removes what makes a session live. Its lane stays where it must tell a late writer that
// it was fenced; the sweeper removes it later.
func endSession(tx store.Tx, s *sessionRecord) error {
	err := errors.Join(tx.DeleteMeta(sessionKey(s.ID)), tx.DeleteMeta(tokenKey(s.Token)))
	if err != nil {
		return fmt.Errorf("end session %d: %w", s.ID, err)
	}
	return nil
}
