package lineage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// The property test drives random jobs, operations, barriers, failures, restores, rescales, forks and their
// flattening, releases and sweeps through the lineage layers of two servers on one store, and compares everything that
// can be read with plain Go maps. `go test ./server/lineage -run TestModel -rapid.seed=N` repeats a run.

const modelGroups = 4

// modelRow names a row in the model.
type modelRow struct {
	state int
	group uint16
	key   string
}

// modelStates are the states of every session, by the number that sessions give them.
var modelStates = []struct {
	name string
	kind StateKind
}{{"value", KindValue}, {"list", KindList}, {"map", KindMap}, {"timer", KindTimer}}

type modelView map[modelRow]string

// modelSession is a session of the system under test beside what it should hold.
type modelSession struct {
	session *Session
	server  int
	token   string
	job     string
	groups  Range
	rows    modelView
	seq     uint64
	epoch   uint64
	fenced  bool
	// last is the newest frame, which a client that lost its connection sends again.
	last      []Entry
	lastEpoch uint64
	// lastSnapshot is the newest request for a snapshot, which it repeats too, whatever it wrote since.
	lastSnapshot SnapshotRequest
	lastTaken    *modelSnapshot
}

// modelSnapshot is a snapshot beside what it should show.
type modelSnapshot struct {
	id       string
	groups   Range
	rows     modelView
	released bool
}

type model struct {
	ctx       context.Context
	store     store.Store
	now       time.Time
	servers   [2]*Lineage
	sessions  []*modelSession
	snapshots []*modelSnapshot
	jobs      int
	// flattenings go on, or try to, when their session has moved or ended.
	flattenings []*flattening
}

func newModel(t *rapid.T) *model {
	m := &model{ctx: context.Background(), store: memory.New(), now: time.Unix(1_000_000, 0)}
	for i := range m.servers {
		m.restartServer(t, i)
	}
	return m
}

func (m *model) must(t *rapid.T, err error) {
	if err != nil {
		t.Fatalf("%+v", err)
	}
}

// any picks one of the servers.
func (m *model) any(t *rapid.T) *Lineage { return m.servers[m.anyIndex(t)] }

func (m *model) anyIndex(t *rapid.T) int {
	return rapid.IntRange(0, len(m.servers)-1).Draw(t, "server")
}

func (m *model) restartServer(t *rapid.T, i int) {
	cache := rapid.SampledFrom([]int64{0, 8_000, 1 << 20}).Draw(t, "bytes of row cache")
	l, err := New(m.ctx, m.store, Options{RowCacheBytes: cache, Log: zerolog.Nop(), Now: func() time.Time { return m.now }, Elapsed: func() time.Duration { return m.now.Sub(time.Unix(0, 0)) }, Lease: time.Hour})
	m.must(t, err)
	l.clearAtOnce.rows = rapid.SampledFrom([]int{1, 2, clearRows}).Draw(t, "rows cleared at once")
	m.servers[i] = l
}

func (m *model) live() []*modelSession {
	var live []*modelSession
	for _, s := range m.sessions {
		if !s.fenced {
			live = append(live, s)
		}
	}
	return live
}

func (m *model) kept() []*modelSnapshot {
	var kept []*modelSnapshot
	for _, s := range m.snapshots {
		if !s.released {
			kept = append(kept, s)
		}
	}
	return kept
}

// open opens a session of a job on some key groups, restored from snapshots or empty.
func (m *model) open(t *rapid.T, job string, groups Range, bases []Base, rows modelView) *modelSession {
	s := &modelSession{token: uuid.NewString(), server: m.anyIndex(t), job: job, groups: groups, rows: rows, epoch: 1}
	result, err := m.any(t).Open(m.ctx, OpenRequest{
		Token: s.token, JobID: job, GroupCount: modelGroups, Range: groups, Bases: bases,
	})
	m.must(t, err)
	m.attach(t, s, result.SessionID)
	m.sessions = append(m.sessions, s)
	return s
}

func (m *model) attach(t *rapid.T, s *modelSession, id uint64) {
	session, err := m.servers[s.server].Attach(m.ctx, id, s.token)
	m.must(t, err)
	for i, state := range modelStates {
		number, err := session.RegisterState(m.ctx, state.name, state.kind)
		m.must(t, err)
		if int(number) != i {
			t.Fatalf("state %s has number %d, expected %d", state.name, number, i)
		}
	}
	if s.session != nil {
		s.session.Detach()
	}
	s.session = session
}

func (m *model) fence(job string, space func(*modelSession) bool) {
	for _, s := range m.live() {
		if s.job == job && space(s) {
			s.fenced = true
			s.session.Detach()
		}
	}
}

// drawKey gives keys that often meet, share prefixes and touch the edges.
func drawKey(t *rapid.T) []byte {
	return []byte(rapid.SampledFrom([]string{"", "a", "ab", "abc", "b", "\x00", "\xff", "\xff\xff"}).Draw(t, "key"))
}

func (m *model) entry(t *rapid.T, s *modelSession) Entry {
	state := rapid.IntRange(0, len(modelStates)-1).Draw(t, "state")
	ops := []Op{OpPut, OpDelete, OpDeletePrefix}
	if modelStates[state].kind == KindList {
		ops = append(ops, OpAppend, OpAppend)
	}
	e := Entry{
		State: uint16(state), Key: drawKey(t),
		Group: rapid.Uint16Range(s.groups.First, s.groups.Last).Draw(t, "group"),
		Op:    rapid.SampledFrom(ops).Draw(t, "op"),
	}
	if e.Op == OpPut || e.Op == OpAppend {
		e.Value = []byte(rapid.StringMatching("[a-z]{0,3}").Draw(t, "value"))
	}
	return e
}

func apply(rows modelView, e Entry) {
	row := modelRow{int(e.State), e.Group, string(e.Key)}
	switch e.Op {
	case OpPut:
		rows[row] = string(e.Value)
	case OpDelete:
		delete(rows, row)
	case OpAppend:
		if old, known := rows[row]; known {
			rows[row] = old + "," + string(e.Value)
		} else {
			rows[row] = string(e.Value)
		}
	case OpDeletePrefix:
		maps.DeleteFunc(rows, func(r modelRow, _ string) bool {
			return r.state == row.state && r.group == row.group && len(r.key) >= len(row.key) && r.key[:len(row.key)] == row.key
		})
	}
}

func (m *model) write(t *rapid.T, s *modelSession) {
	n := rapid.IntRange(1, 16).Draw(t, "entries")
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = m.entry(t, s)
	}
	s.seq++
	m.must(t, s.session.Write(m.ctx, s.seq, s.epoch, entries))
	for _, e := range entries {
		apply(s.rows, e)
	}
	s.last, s.lastEpoch = entries, s.epoch
}

func (m *model) snapshot(t *rapid.T, s *modelSession) {
	id := uuid.NewString()
	request := SnapshotRequest{ID: id, Epoch: s.epoch, CheckpointID: int64(s.epoch), Kind: SnapshotCheckpoint}
	_, commit, err := s.session.Snapshot(m.ctx, request)
	m.must(t, err)
	m.must(t, commit.Wait(m.ctx))
	s.epoch++
	taken := &modelSnapshot{id: id, groups: s.groups, rows: maps.Clone(s.rows)}
	m.snapshots = append(m.snapshots, taken)
	s.lastSnapshot, s.lastTaken = request, taken
}

// check compares all that a session can read with the model.
func (m *model) check(t *rapid.T, s *modelSession) {
	for state := range modelStates {
		found := modelView{}
		request := ScanRequest{State: uint16(state), Range: s.groups, LimitRows: rapid.IntRange(1, 5).Draw(t, "page")}
		if rapid.Bool().Draw(t, "by key") {
			request.Order = OrderKeyGroup
		}
		var last *Entry
		for {
			rows, done, err := s.session.Scan(m.ctx, request)
			m.must(t, err)
			for i := range rows {
				if last != nil && !ordered(request.Order, *last, rows[i]) {
					t.Fatalf("scan order: %v then %v", last, rows[i])
				}
				last = &rows[i]
				found[modelRow{state, rows[i].Group, string(rows[i].Key)}] = string(rows[i].Value)
			}
			if done {
				break
			}
			request.Resume, request.AfterGroup, request.AfterKey = true, last.Group, last.Key
		}
		want := modelView{}
		for row, value := range s.rows {
			if row.state == state {
				want[row] = value
			}
		}
		if !maps.Equal(found, want) {
			t.Fatalf("session %d, state %s: found %v, expected %v", s.session.ID(), modelStates[state].name, found, want)
		}
		n, err := s.session.Count(m.ctx, uint16(state), s.groups)
		m.must(t, err)
		if int(n) != len(want) {
			t.Fatalf("count %d, expected %d", n, len(want))
		}
	}
	key := Entry{State: uint16(rapid.IntRange(0, 3).Draw(t, "state")), Group: s.groups.First, Key: drawKey(t)}
	values, err := s.session.Read(m.ctx, []Entry{key})
	m.must(t, err)
	want, known := s.rows[modelRow{int(key.State), key.Group, string(key.Key)}]
	if known != (values[0] != nil) || string(values[0]) != want {
		t.Fatalf("read %v: found %q, expected %q (%v)", key, values[0], want, known)
	}
}

func ordered(order Order, a, b Entry) bool {
	byKey := bytes.Compare(a.Key, b.Key)
	if order == OrderKeyGroup {
		return byKey < 0 || byKey == 0 && a.Group < b.Group
	}
	return a.Group < b.Group || a.Group == b.Group && byKey < 0
}

// checkSnapshot compares what a snapshot shows with the model.
func (m *model) checkSnapshot(t *rapid.T, s *modelSnapshot) {
	reader, err := m.any(t).OpenReader(m.ctx, ReadRequest{SnapshotID: s.id})
	m.must(t, err)
	found := modelView{}
	for {
		rows, err := reader.Next(m.ctx)
		m.must(t, err)
		if len(rows) == 0 {
			break
		}
		for _, r := range rows {
			name := reader.States()[r.State].Name
			state := slices.IndexFunc(modelStates, func(s struct {
				name string
				kind StateKind
			}) bool {
				return s.name == name
			})
			found[modelRow{state, r.Group, string(r.Key)}] = string(r.Value)
		}
	}
	m.must(t, reader.Close(m.ctx))
	if !maps.Equal(found, s.rows) {
		t.Fatalf("snapshot %s: found %v, expected %v", s.id, found, s.rows)
	}
}

func (m *model) newJob() string {
	m.jobs++
	return fmt.Sprintf("job-%d", m.jobs)
}

func within(rows modelView, groups Range) modelView {
	part := modelView{}
	for row, value := range rows {
		if groups.contains(row.group) {
			part[row] = value
		}
	}
	return part
}

// restore starts subtasks of a job from a snapshot, with its key groups cut anew.
func (m *model) restore(t *rapid.T, job string, s *modelSnapshot) {
	// Restoring ends the older attempts of the same job that write where the snapshot was taken.
	record, err := m.servers[0].readSnapshot(m.ctx, s.id)
	m.must(t, err)
	m.fence(job, func(other *modelSession) bool {
		return slices.ContainsFunc(record.Parts, func(p part) bool { return other.session.record.writes(p.Layers[0].Space, p.Range) })
	})
	first := int(s.groups.First)
	for first <= int(s.groups.Last) {
		last := rapid.IntRange(first, int(s.groups.Last)).Draw(t, "cut")
		groups := Range{uint16(first), uint16(last)}
		m.open(t, job, groups, []Base{{s.id, groups}}, within(s.rows, groups))
		first = last + 1
	}
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.open(t, m.newJob(), Range{0, modelGroups - 1}, nil, modelView{})
		pick := func(t *rapid.T) *modelSession {
			live := m.live()
			if len(live) == 0 {
				return m.open(t, m.newJob(), Range{0, modelGroups - 1}, nil, modelView{})
			}
			return rapid.SampledFrom(live).Draw(t, "session")
		}
		pickSnapshot := func(t *rapid.T) *modelSnapshot {
			kept := m.kept()
			if len(kept) == 0 {
				t.Skip("no snapshot")
			}
			return rapid.SampledFrom(kept).Draw(t, "snapshot")
		}
		t.Repeat(map[string]func(*rapid.T){
			"write":         func(t *rapid.T) { m.write(t, pick(t)) },
			"write2":        func(t *rapid.T) { m.write(t, pick(t)) },
			"barrier":       func(t *rapid.T) { pick(t).epoch++ }, // a checkpoint that never came to a snapshot
			"snapshot":      func(t *rapid.T) { m.snapshot(t, pick(t)) },
			"check":         func(t *rapid.T) { m.check(t, pick(t)) },
			"read snapshot": func(t *rapid.T) { m.checkSnapshot(t, pickSnapshot(t)) },
			"resend": func(t *rapid.T) {
				s := pick(t)
				if s.last == nil {
					t.Skip("nothing written")
				}
				m.attach(t, s, s.session.ID())
				if s.lastTaken != nil && !s.lastTaken.released {
					_, commit, err := s.session.Snapshot(m.ctx, s.lastSnapshot)
					m.must(t, err)
					m.must(t, commit.Wait(m.ctx))
				}
				m.must(t, s.session.Write(m.ctx, s.seq, s.lastEpoch, s.last))
			},
			"restart server": func(t *rapid.T) {
				i := m.anyIndex(t)
				m.restartServer(t, i)
				for _, s := range m.live() {
					if s.server == i {
						m.attach(t, s, s.session.ID())
					}
				}
			},
			"move": func(t *rapid.T) {
				s := pick(t)
				s.server = m.anyIndex(t)
				m.attach(t, s, s.session.ID())
			},
			"flatten":  func(t *rapid.T) { m.flatten(t, pick(t)) },
			"flatten2": func(t *rapid.T) { m.flatten(t, pick(t)) },
			"recover": func(t *rapid.T) { // the same job, from any of its snapshots or another's
				s := pick(t)
				snapshot := pickSnapshot(t)
				if !m.ownedBy(s.job, snapshot) {
					t.Skip("snapshot of another job")
				}
				m.restore(t, s.job, snapshot)
			},
			"start from snapshot": func(t *rapid.T) { m.restore(t, m.newJob(), pickSnapshot(t)) },
			"close": func(t *rapid.T) {
				s := pick(t)
				m.must(t, s.session.Close(m.ctx))
				s.session.Detach()
				s.fenced = true
			},
			"release": func(t *rapid.T) {
				s := pickSnapshot(t)
				existed, err := m.any(t).Release(m.ctx, s.id)
				m.must(t, err)
				if !existed {
					t.Fatalf("snapshot %s was not there", s.id)
				}
				s.released = true
			},
			"sweep": func(t *rapid.T) {
				_, err := m.any(t).collect(m.ctx, rapid.Bool().Draw(t, "everything"))
				m.must(t, err)
			},
			"zombie": func(t *rapid.T) { // a fenced or closed session changes nothing
				for _, s := range m.sessions {
					if s.fenced {
						err := s.session.Write(m.ctx, s.seq+1, s.epoch, []Entry{{Op: OpPut, Group: s.groups.First, Key: []byte("zombie")}})
						if !errors.Is(err, ErrFenced) && !errors.Is(err, ErrSessionNotFound) {
							t.Fatalf("a zombie's write: %v", err)
						}
					}
				}
			},
		})
		m.finish(t)
	})
}

// ownedBy says whether a snapshot was taken by sessions of a job.
func (m *model) ownedBy(job string, s *modelSnapshot) bool {
	info, err := m.servers[0].Snapshot(m.ctx, s.id)
	return err == nil && info.JobID == job
}

// flatten goes on with the flattening of a session, or begins one.
func (m *model) flatten(t *rapid.T, s *modelSession) {
	i := slices.IndexFunc(m.flattenings, func(f *flattening) bool { return f.a.record.ID == s.session.ID() })
	if i < 0 || rapid.IntRange(0, 9).Draw(t, "anew") == 0 {
		i = len(m.flattenings)
		m.flattenings = append(m.flattenings, newModelFlattening(t, s))
	}
	f := m.flattenings[i]
	steps := rapid.IntRange(1, 12).Draw(t, "steps")
	if rapid.Bool().Draw(t, "to the end") {
		steps = 10_000
	}
	for ; steps > 0 && !f.done; steps-- {
		if _, err := f.step(m.ctx); err != nil {
			m.mayFail(t, f, s, err)
			f.done = true
		}
	}
	if f.done {
		m.flattenings = slices.Delete(m.flattenings, i, i+1)
	}
	if f.done && f.err == nil && f.a == s.session.attached && layeredGroups(s.session.parts) > 0 {
		t.Fatalf("layers are left: %v", s.session.parts)
	}
}

// mayFail demands that a flattening that failed was at a server that the session has left, or was overtaken by another
// one: then it may find a row space gone.
func (m *model) mayFail(t *rapid.T, f *flattening, s *modelSession, err error) {
	if f.a != s.session.attached {
		return
	}
	layers, layersErr := f.a.layersOf(uint16(f.group))
	m.must(t, layersErr)
	if len(layers) > 1 {
		t.Fatalf("%+v", err)
	}
}

func newModelFlattening(t *rapid.T, s *modelSession) *flattening {
	f := newFlattening(s.session.attached)
	f.page = rapid.IntRange(1, 3).Draw(t, "page")
	if rapid.Bool().Draw(t, "cut early") {
		f.cutInterval = 0
	}
	return f
}

// finish compares everything once more, then lets go of all: no row may stay.
func (m *model) finish(t *rapid.T) {
	m.checkAll(t)
	m.checkGarbage(t)
	flat := rapid.Bool().Draw(t, "flatten all")
	if flat {
		m.flattenAll(t)
		m.checkAll(t)
	}
	m.checkAll(t)
	for _, s := range m.kept() {
		_, err := m.any(t).Release(m.ctx, s.id)
		m.must(t, err)
	}
	m.checkGarbage(t)
	for _, s := range m.live() {
		m.check(t, s)
	}
	if flat {
		m.checkSpaces(t)
	}
	for _, s := range m.live() {
		m.must(t, s.session.Close(m.ctx))
		s.session.Detach()
	}
	m.checkEmpty(t)
}

func (m *model) checkAll(t *rapid.T) {
	for _, s := range m.live() {
		m.check(t, s)
	}
	for _, s := range m.kept() {
		m.checkSnapshot(t, s)
	}
}

func (m *model) checkGarbage(t *rapid.T) {
	m.collectRemembered(t)
	report, err := m.any(t).Collect(m.ctx, true)
	m.must(t, err)
	if report.RemovedRows+report.RemovedVersions+report.DroppedSpaces > 0 {
		t.Fatalf("garbage after a collection: %+v", report)
	}
}

// collectRemembered has the servers sweep what they remember. What ends in one pass is looked at in the next.
func (m *model) collectRemembered(t *rapid.T) {
	for range 2 {
		for _, l := range m.servers {
			_, err := l.collect(m.ctx, false)
			m.must(t, err)
		}
	}
}

func (m *model) flattenAll(t *rapid.T) {
	for _, s := range m.live() {
		f := newModelFlattening(t, s)
		for !f.done {
			_, err := f.step(m.ctx)
			m.must(t, err)
		}
		if layeredGroups(s.session.parts) > 0 {
			t.Fatalf("layers are left: %v", s.session.parts)
		}
	}
}

// checkSpaces demands that each row space is the top one of a session: after flattening none may be kept for what is
// visible through others, and no tombstone is left that hid it.
func (m *model) checkSpaces(t *rapid.T) {
	tops := map[uint64]bool{}
	for _, s := range m.live() {
		for _, p := range s.session.parts {
			tops[p.Layers[0].Space] = true
		}
	}
	spaces, err := m.any(t).Spaces(m.ctx, true)
	m.must(t, err)
	rows, versions, want := uint64(0), uint64(0), 0
	for _, space := range spaces {
		if !tops[space.ID] {
			t.Fatalf("row space %d is left, sessions write %v", space.ID, tops)
		}
		rows, versions = rows+space.Rows, versions+space.Versions
	}
	for _, s := range m.live() {
		want += len(s.rows)
	}
	if int(rows) != want || int(versions) < want {
		t.Fatalf("%d rows with %d versions are left, expected %d", rows, versions, want)
	}
}

func (m *model) checkEmpty(t *rapid.T) {
	_, err := m.any(t).Collect(m.ctx, false)
	m.must(t, err)
	size, err := m.store.Bytes(m.ctx)
	m.must(t, err)
	if size != 0 {
		t.Fatalf("%d bytes of rows are left", size)
	}
	metas, err := m.store.ScanMeta(m.ctx, "")
	m.must(t, err)
	for _, meta := range metas {
		if meta.Key != counterKey {
			t.Fatalf("the record %s is left", meta.Key)
		}
	}
}
