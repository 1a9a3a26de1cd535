package lineage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/flinkndb/flinkndb/server/store"
)

// attached is what this server keeps of a session that has or had a stream here.
type attached struct {
	l      *Lineage
	record *sessionRecord // as of the first stream; what the session sees now is in parts
	unsure atomic.Bool    // it is not known whether layers were cut: only a new stream finds out
	fenced atomic.Bool    // at this server: nobody keeps what it sees any more

	// mu is held through each call that uses the fields below: shared by writes and reads, which must not wait
	// for writes, exclusively by what changes them otherwise.
	mu      sync.RWMutex
	writes  sync.Mutex // held through each write: writes of a session come one by one
	parts   []part
	empty   []bool // of each part, whether the session started it with no rows
	states  []*sessionState
	views   viewCache
	commits *commitQueue
	newRows *newRows  // nil where rows may exist that were not written here
	seen    *seenRows // nil where nothing is cached

	unsettled *unsettled

	attachment atomic.Uint64 // number of the newest stream here; changes under mu
	renewal    renewal
	streams    int // under Lineage.mu
}

// maxStateNumber is the largest number of a state in a row space. States that no job uses any more keep theirs.
const maxStateNumber = math.MaxUint16

// maxSchemaBytes bounds what Flink says of the states of one operator.
const maxSchemaBytes = 16 << 20

// sessionState is a state as the session numbers it.
type sessionState struct {
	name string
	kind StateKind
	// numbers holds, for each part and layer of the session, the state's number in that row space.
	numbers [][]stateNumber
}

// stateNumber is the number of a state in one row space; known is false where that space has no rows
// of the state.
type stateNumber struct {
	number uint16
	known  bool
}

// Session is one stream's hold on a session. When a newer stream attaches, calls through the older
// one that change anything fail. For use by one goroutine, except the methods that say otherwise.
type Session struct {
	*attached
	stream  uint64 // its attachment
	applied uint64
}

// Attach gives a stream hold of a session.
func (l *Lineage) Attach(ctx context.Context, id uint64, token string) (*Session, error) {
	var progress lane
	var record *sessionRecord
	commit, err := l.store.Update(ctx, func(tx store.Tx) error {
		var err error
		if progress, err = lockLane(tx, id); err != nil {
			return err
		}
		if progress.Fenced {
			return ErrFenced
		}
		// The lane keeps others from changing the record.
		if record, err = readSession(tx, id); err != nil {
			return err
		}
		if record.Token != token {
			return fmt.Errorf("%w: session %d has another token", ErrSessionNotFound, id)
		}
		record.Renewed = l.opt.Now()
		progress.Attachment++
		if err := writeLane(tx, id, progress); err != nil {
			return err
		}
		return writeRecord(tx, sessionKey(id), record)
	})
	if err != nil {
		return nil, fmt.Errorf("attach to session %d: %w", id, err)
	}
	// The session may have taken snapshots at another server.
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return nil, fmt.Errorf("read the catalog: %w", err)
	}
	a := l.hold(record)
	// What was applied before is durable when this is, whoever applied it: here or at another server, whether it
	// was known here that it was applied or not.
	a.commits.add(progress.Applied, commit)
	a.follow(record, progress)
	l.catalog.change(func() { l.catalog.sessions[id] = record })
	return &Session{attached: a, stream: progress.Attachment, applied: progress.Applied}, nil
}

// hold returns what this server keeps of a session, with one stream more.
func (l *Lineage) hold(record *sessionRecord) *attached {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.live[record.ID]
	if a == nil {
		a = &attached{l: l, record: record, commits: newCommitQueue(), unsettled: &unsettled{budget: &l.unsettled}}
		if l.rows != nil {
			a.seen = newSeenRows(l.rows)
		}
		a.setParts(record.Parts)
		l.live[record.ID] = a
	}
	a.streams++
	a.renewal.done(l.opt.Elapsed()) // attaching has renewed the lease
	return a
}

// follow takes over what a new stream found in the store: another server may have changed it meanwhile.
func (a *attached) follow(record *sessionRecord, progress lane) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if progress.Attachment < a.attachment.Load() {
		return // a newer stream was faster
	}
	if progress.Attachment > a.attachment.Load()+1 {
		a.unsettled.miss(progress.Epoch) // a stream at another server came between
	}
	a.attachment.Store(progress.Attachment)
	a.unsure.Store(false)
	a.setParts(record.Parts)
	a.followNewRows(progress)
	a.seen.startStream()
}

// setParts replaces what the session sees by the same with fewer layers.
func (a *attached) setParts(parts []part) {
	for _, state := range a.states {
		state.numbers = renumber(a.parts, state.numbers, parts)
	}
	a.parts = parts
	a.empty = make([]bool, len(parts))
	for i, p := range parts {
		a.empty[i] = a.record.startedEmpty(p)
	}
	a.views = viewCache{}
}

// followNewRows begins to keep track of new rows with the first stream of a session, and goes on with the next
// one if no stream at another server came between.
func (a *attached) followNewRows(progress lane) {
	switch {
	case progress.Applied == 0 && a.newRows == nil:
		a.newRows = newNewRows(&a.l.filters, progress.Attachment)
	case a.newRows != nil && a.newRows.attachment == progress.Attachment-1:
		a.newRows.attachment = progress.Attachment
	default:
		a.forgetNewRows()
	}
}

// newestStream acts for the newest stream here; calls fail once there is a newer one at another server.
func (a *attached) newestStream() *Session {
	return &Session{attached: a, stream: a.attachment.Load()}
}

func (a *attached) forgetNewRows() {
	if a.newRows != nil {
		a.newRows.free()
		a.newRows = nil
	}
}

// readSession reads the record of a session whose lane the transaction holds.
func readSession(tx store.Tx, id uint64) (*sessionRecord, error) {
	record := &sessionRecord{}
	found, err := readRecord(tx.Meta, sessionKey(id), record)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%w: session %d has ended", ErrSessionNotFound, id)
	}
	return record, nil
}

// ID is the session's number, and its generation.
func (s *Session) ID() uint64 { return s.record.ID }

// OlderThan says whether the other stream of the session has attached later.
func (s *Session) OlderThan(other *Session) bool { return s.stream < other.stream }

// AppliedSeq is the highest seq applied when this stream attached.
func (s *Session) AppliedSeq() uint64 { return s.applied }

// Durable returns the highest durable seq and a channel that is closed when there is news. An error
// says that durability of later writes is not known: the session cannot go on. For any goroutine.
func (s *Session) Durable() (uint64, <-chan struct{}, error) { return s.commits.durable() }

// RegisterState gives a state the session's number for it.
func (s *Session) RegisterState(ctx context.Context, name string, kind StateKind) (uint16, error) {
	if kind < KindValue || kind > KindTimer {
		return 0, fmt.Errorf("%w: kind of state %q is %d, allowed are 1 to 4", ErrInvalid, name, kind)
	}
	if err := checkName("register_state.name", name, maxStateName); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, known := range s.states {
		if known.name == name && (known.kind == KindTimer) == (kind == KindTimer) {
			known.kind = kind
			return uint16(i), nil
		}
	}
	if len(s.states) > 32766 {
		return 0, fmt.Errorf("%w: more than 32767 states", ErrInvalid)
	}
	state := &sessionState{name: name, kind: kind}
	for _, p := range s.parts {
		numbers := make([]stateNumber, len(p.Layers))
		for i, l := range p.Layers {
			number, err := s.l.stateNumber(ctx, l.Space, name, kind, i == 0)
			if err != nil {
				return 0, err
			}
			numbers[i] = number
		}
		state.numbers = append(state.numbers, numbers)
	}
	s.states = append(s.states, state)
	s.seen.addState()
	return uint16(len(s.states) - 1), nil
}

// stateNumber looks a state up in a row space's directory and, if asked, adds it.
func (l *Lineage) stateNumber(ctx context.Context, space uint64, name string, kind StateKind, add bool) (stateNumber, error) {
	record, err := l.space(ctx, space)
	if err != nil {
		return stateNumber{}, err
	}
	if n, ok := record.state(name, kind); ok {
		return stateNumber{n, true}, nil
	}
	if !add {
		return stateNumber{}, nil
	}
	var number uint16
	var changed *spaceRecord
	if _, err := l.store.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.LockMeta(spaceKey(space)); err != nil {
			return fmt.Errorf("lock row space %d: %w", space, err)
		}
		changed = &spaceRecord{}
		found, err := readRecord(tx.Meta, spaceKey(space), changed)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("row space %d has no record", space)
		}
		if n, ok := changed.state(name, kind); ok {
			number = n
			return nil
		}
		if len(changed.States) > maxStateNumber {
			return fmt.Errorf("%w: row space %d has had %d states, which is as many as fit", ErrInvalid, space, len(changed.States))
		}
		number = uint16(len(changed.States))
		changed.States = append(changed.States, StateInfo{number, name, kind})
		return writeRecord(tx, spaceKey(space), changed)
	}); err != nil {
		return stateNumber{}, fmt.Errorf("add state %q: %w", name, err)
	}
	l.catalog.change(func() { l.catalog.spaces[space] = changed })
	return stateNumber{number, true}, nil
}

// partOf finds the part that a key group belongs to.
func (a *attached) partOf(group uint16) (int, error) {
	parts := a.parts
	i := sort.Search(len(parts), func(i int) bool { return parts[i].Last >= group })
	if i == len(parts) || !parts[i].contains(group) {
		return 0, fmt.Errorf("%w: group is %d, the session has %d to %d", ErrInvalid, group, a.record.Range.First, a.record.Range.Last)
	}
	return i, nil
}

func (a *attached) state(number uint16) (*sessionState, error) {
	if int(number) >= len(a.states) {
		return nil, fmt.Errorf("%w: state is %d, registered are %d", ErrInvalid, number, len(a.states))
	}
	return a.states[number], nil
}

// Read looks up rows; nil for those that have no value. For any goroutine; it does not wait for a Write that
// is going on, so which version it finds of a row of that Write is open.
func (s *Session) Read(ctx context.Context, keys []Entry) ([][]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	values := make([][]byte, len(keys))
	reading := s.seen.read(keys, values)
	if err := s.readStore(ctx, keys, reading.open, values); err != nil {
		return nil, err
	}
	reading.keep(values)
	return values, s.checkNotFenced()
}

// readStore fills in the rows that are not cached.
func (s *Session) readStore(ctx context.Context, keys []Entry, rows []openRow, values [][]byte) error {
	found := make([]resolution, len(keys))
	open := make([]int, len(rows)) // entries that no layer has decided yet
	for i := range open {
		open[i] = rows[i].index
	}
	for depth := 0; len(open) > 0; depth++ {
		next, err := s.readLayer(ctx, keys, found, open, depth)
		if err != nil {
			return err
		}
		open = next
	}
	limit := s.l.Limits().MaxValueBytes
	for _, row := range rows {
		i := row.index
		if size := found[i].size(); size > limit {
			return tooLargeToRead(size, s.states[keys[i].State].name, limit)
		}
		values[i] = found[i].value()
	}
	return nil
}

// checkNotFenced refuses what was read if the session was fenced at this server meanwhile: whoever took its place no
// longer keeps the versions that only it sees. (What was fenced at another server is told so by its next write.)
func (s *Session) checkNotFenced() error {
	if s.fenced.Load() {
		return ErrFenced
	}
	return nil
}

// tooLargeToRead is the answer for a value that came to be under a larger limit, or as a list that grew on
// both sides of a fork.
func tooLargeToRead(size int, state string, limit int) error {
	return fmt.Errorf("%w: value of %d bytes in state %q, allowed are %d: start the server with a larger --max-value-bytes", ErrTooLarge, size, state, limit)
}

// readLayer looks the open entries up in one layer and returns those that need a deeper one.
func (s *Session) readLayer(ctx context.Context, keys []Entry, found []resolution, open []int, depth int) ([]int, error) {
	rows := make([]store.RowKey, 0, len(open))
	asked := make([]int, 0, len(open))
	histories := make([]History, 0, len(open))
	var deeper []int
	for _, i := range open {
		e := &keys[i]
		p, err := s.partOf(e.Group)
		if err != nil {
			return nil, err
		}
		state, err := s.state(e.State)
		if err != nil {
			return nil, err
		}
		layers := s.parts[p].Layers
		if depth >= len(layers) {
			continue
		}
		if number := state.numbers[p][depth]; number.known {
			rows = append(rows, store.RowKey{Space: layers[depth].Space, Group: e.Group, State: number.number, Key: e.Key})
			asked = append(asked, i)
			histories = append(histories, layers[depth].History)
		} else {
			deeper = append(deeper, i)
		}
	}
	raws, err := s.l.store.Get(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("read rows: %w", err)
	}
	var buf [8]version
	for j, raw := range raws {
		i := asked[j]
		if raw != nil {
			versions, err := decodeRow(raw, buf[:0])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rows[j].Name(), err)
			}
			if found[i].add(versions, histories[j]) {
				continue
			}
		}
		deeper = append(deeper, i)
	}
	return deeper, nil
}

// Snapshot records a snapshot as of the end of an epoch. It counts once the commit is durable, for
// which the session need not be held up. Repeats with the same id do nothing.
func (s *Session) Snapshot(ctx context.Context, r SnapshotRequest) (SnapshotResult, store.Commit, error) {
	if err := checkName("snapshot_id", r.ID, maxID); err != nil {
		return SnapshotResult{}, nil, err
	}
	if len(r.Schema) > maxSchemaBytes {
		return SnapshotResult{}, nil, fmt.Errorf("%w: schema of %d bytes, allowed are %d", ErrInvalid, len(r.Schema), maxSchemaBytes)
	}
	if r.Kind < SnapshotCheckpoint || r.Kind > SnapshotExport {
		return SnapshotResult{}, nil, fmt.Errorf("%w: kind of snapshot is %d, allowed are 1 to 3", ErrInvalid, r.Kind)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var result SnapshotResult
	var repeated bool
	record := s.snapshotRecord(r)
	commit, err := s.l.store.Update(ctx, func(tx store.Tx) error {
		progress, err := s.lockProgress(tx)
		if err != nil {
			return err
		}
		// A client that lost its connection repeats the request, perhaps after writes of later epochs. And the store
		// repeats a transaction that it took for lost: then it is this call that has made the record.
		known := &snapshotRecord{}
		if repeated, err = readRecord(tx.Meta, snapshotKey(r.ID), known); err != nil {
			return err
		}
		if repeated {
			record = known
			return writeLane(tx, s.record.ID, progress) // durable when the snapshot is
		}
		if progress.Applied < r.LastSeq {
			return fmt.Errorf("%w: session %d has sent %d writes before snapshot %s, the store has %d: it has lost the newest ones",
				ErrSessionNotFound, s.record.ID, r.LastSeq, r.ID, progress.Applied)
		}
		if progress.Epoch > r.Epoch {
			return fmt.Errorf("%w: snapshot of epoch %d after a write of epoch %d", ErrInvalid, r.Epoch, progress.Epoch)
		}
		result = SnapshotResult{progress.DeltaRows, progress.DeltaBytes}
		progress.Epoch, progress.DeltaRows, progress.DeltaBytes = r.Epoch+1, 0, 0
		if err := writeLane(tx, s.record.ID, progress); err != nil {
			return err
		}
		return writeRecord(tx, snapshotKey(r.ID), record)
	})
	if err != nil {
		return SnapshotResult{}, nil, fmt.Errorf("snapshot %s: %w", r.ID, err)
	}
	// From here on writes of later epochs must keep what the snapshot sees.
	s.l.catalog.change(func() {
		if !repeated || s.l.catalog.snapshots[r.ID] == nil { // what the catalog has may be newer: confirmed
			s.l.catalog.snapshots[r.ID] = record
		}
	})
	return result, commit, nil
}

func (s *Session) snapshotRecord(r SnapshotRequest) *snapshotRecord {
	parts := make([]part, len(s.parts))
	for i, p := range s.parts {
		layers := append([]layer(nil), p.Layers...)
		layers[0].History = layers[0].History.until(r.Epoch)
		parts[i] = part{p.Range, layers}
	}
	return &snapshotRecord{
		ID: r.ID, JobID: s.record.JobID, JobName: s.record.JobName, Operator: s.record.Operator,
		CheckpointID: r.CheckpointID, Kind: r.Kind, Created: s.l.opt.Now(), GroupCount: s.record.GroupCount,
		Range: s.record.Range, Parts: parts, Session: s.record.ID, Epoch: r.Epoch, Schema: r.Schema,
		States: r.States,
	}
}

// lockProgress locks the session's lane and verifies that this stream may still change something.
func (s *Session) lockProgress(tx store.Tx) (lane, error) {
	if s.unsure.Load() {
		return lane{}, fmt.Errorf("%w: it is not known what session %d sees, until it is attached again", store.ErrUnavailable, s.record.ID)
	}
	progress, err := lockLane(tx, s.record.ID)
	if err != nil {
		return lane{}, err
	}
	if progress.Fenced {
		return lane{}, ErrFenced
	}
	if progress.Attachment != s.stream {
		return lane{}, fmt.Errorf("%w: session %d is attached by a newer stream", ErrSessionNotFound, s.record.ID)
	}
	return progress, nil
}

// Notify takes a hint of Flink about a checkpoint of this session.
func (s *Session) Notify(ctx context.Context, checkpointID int64, completed bool) error {
	var ids []string
	s.l.catalog.mu.RLock()
	for _, snapshot := range s.l.catalog.snapshots {
		// Flink tells of a savepoint only that it is complete, and that only when the job stops with it.
		told := snapshot.Kind == SnapshotCheckpoint || snapshot.Kind == SnapshotSavepoint && completed
		if told && snapshot.Session == s.record.ID && snapshot.CheckpointID == checkpointID && !snapshot.Confirmed {
			ids = append(ids, snapshot.ID)
		}
	}
	s.l.catalog.mu.RUnlock()
	for _, id := range ids {
		var err error
		if completed {
			err = s.l.confirm(ctx, id)
		} else {
			err = s.l.abandonUnconfirmed(ctx, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm notes that Flink counts on a snapshot.
func (l *Lineage) confirm(ctx context.Context, id string) error {
	return l.note(ctx, "confirm", id, func(s *snapshotRecord) { s.Confirmed = true })
}

// abandonUnconfirmed leaves a snapshot of an aborted checkpoint to its retention, unless Flink counts on it by now. It is
// not released at once: when the high-availability store does not say whether it took a checkpoint, the JobManager
// tells that it was aborted, and keeps its state, since the next JobManager may find it there and restore it. What
// Flink does not keep, it discards itself.
func (l *Lineage) abandonUnconfirmed(ctx context.Context, id string) error {
	return l.note(ctx, "abandon", id, func(s *snapshotRecord) {
		if !s.Confirmed && s.Abandoned.IsZero() {
			s.Abandoned = l.steadyNow()
		}
	})
}

// note changes the record of a snapshot, if it is there.
func (l *Lineage) note(ctx context.Context, what, id string, change func(*snapshotRecord)) error {
	var record *snapshotRecord
	_, err := l.store.Update(ctx, func(tx store.Tx) error {
		record = nil
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		stored := &snapshotRecord{}
		found, err := readRecord(tx.Meta, snapshotKey(id), stored)
		if err != nil || !found {
			return err
		}
		change(stored)
		record = stored
		return writeRecord(tx, snapshotKey(id), stored)
	})
	if err != nil {
		return fmt.Errorf("%s snapshot %s: %w", what, id, err)
	}
	if record != nil {
		l.catalog.change(func() { l.catalog.snapshots[id] = record })
		l.settle(record)
	}
	return nil
}

// settle notes that rows need not be remembered any more because a confirmed snapshot has them.
func (l *Lineage) settle(s *snapshotRecord) {
	l.mu.Lock()
	a := l.live[s.Session]
	l.mu.Unlock()
	if a != nil {
		a.unsettled.confirmed(s.Epoch)
	}
}

// Detach ends this stream's hold; the session lives on for its lease.
func (s *Session) Detach() {
	s.l.leases.left(s.record.ID)
	s.l.mu.Lock()
	s.streams--
	s.l.mu.Unlock()
	s.l.dropEnded()
}

// Close ends the session, unless a newer stream goes on with it. What its snapshots see stays.
func (s *Session) Close(ctx context.Context) error {
	ended, err := s.l.end(ctx, s)
	if err != nil {
		return fmt.Errorf("close session %d: %w", s.record.ID, err)
	}
	if !ended {
		return nil // if it has ended all the same, the sweeper releases its exports
	}
	return s.l.releaseExports(ctx, s.record.ID)
}

// end removes a session that its own stream closes; false if that is not up to this stream.
func (l *Lineage) end(ctx context.Context, s *Session) (ended bool, err error) {
	l.structure.Lock()
	defer l.structure.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = l.store.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.LockMeta(gateKey); err != nil {
			return fmt.Errorf("lock %s: %w", gateKey, err)
		}
		_, err := s.lockProgress(tx)
		ended = err == nil
		if errors.Is(err, ErrFenced) || errors.Is(err, ErrSessionNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(endSession(tx, s.record), tx.DeleteMeta(laneKey(s.record.ID)))
	})
	if err != nil {
		return false, err
	}
	if !ended {
		return false, l.forgetIfEnded(ctx, s)
	}
	s.forgetNewRows()
	l.forget(s.record.ID)
	return true, nil
}

// forgetIfEnded drops a session from memory whose end was not up to this stream: it was fenced or has expired, or it
// lives on with a newer stream. Streams at other servers may have taken snapshots, which writers here must know before
// they stop keeping what the session sees.
func (l *Lineage) forgetIfEnded(ctx context.Context, s *Session) error {
	if err := l.catalog.refresh(ctx, l.store); err != nil {
		return fmt.Errorf("read the catalog: %w", err)
	}
	if l.catalog.hasSession(s.record.ID) {
		return nil
	}
	s.forgetNewRows()
	l.forget(s.record.ID)
	return nil
}

// dropEnded drops the sessions from memory that have ended, fenced or at another server, once they have no stream here.
func (l *Lineage) dropEnded() {
	for _, a := range l.takeEnded() {
		a.commits.stop()
		a.mu.Lock()
		a.forgetNewRows()
		a.mu.Unlock()
		l.sweepUnsettled(a)
	}
}

// takeEnded takes these out of the live ones. A session that attaches at this moment stays: it has a stream before the
// catalog need show it, and the catalog shows it before the stream can end.
func (l *Lineage) takeEnded() []*attached {
	l.catalog.mu.RLock()
	defer l.catalog.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	var ended []*attached
	for id, a := range l.live {
		if a.streams == 0 && (a.fenced.Load() || l.catalog.sessions[id] == nil) {
			ended = append(ended, a)
			delete(l.live, id)
		}
	}
	return ended
}

// forget drops a session that has ended from memory, and returns what there was of it. The caller has made sure that
// the catalog shows all snapshots of the session.
func (l *Lineage) forget(id uint64) *attached {
	l.catalog.change(func() { delete(l.catalog.sessions, id) })
	l.mu.Lock()
	a := l.live[id]
	delete(l.live, id)
	l.mu.Unlock()
	if a != nil {
		a.commits.stop()
		l.sweepUnsettled(a)
	}
	l.garbage.wake()
	return a
}
