package lineage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
	"github.com/flinkndb/flinkndb/server/store/pebble"
)

const (
	forkKeys        = 2_000
	forkGroups      = 4
	forkEpochFrames = 20
	forkBase        = "base" // the parent's snapshot
)

// forkEntry is a change of the fork test's states: 0 is a value, 1 a list.
func forkEntry(state uint16, op Op, key int, value string) Entry {
	return Entry{State: state, Group: uint16(key % forkGroups), Op: op, Key: fmt.Append(nil, "key-", key), Value: []byte(value)}
}

// forkFrame is what the fork writes with a seq: always the same, so that the seq tells what it must hold.
func forkFrame(seq uint64) []Entry {
	random := rand.New(rand.NewPCG(7, seq))
	entries := make([]Entry, 8)
	for i := range entries {
		key, value := random.IntN(forkKeys), fmt.Sprintf("%d-%d", seq, i)
		switch random.IntN(6) {
		case 0:
			entries[i] = forkEntry(0, OpDelete, key, "")
		case 1, 2:
			entries[i] = forkEntry(0, OpPut, key, value)
		case 3:
			entries[i] = forkEntry(1, OpDelete, key, "")
		default:
			entries[i] = forkEntry(1, OpAppend, key, value)
		}
	}
	return entries
}

func forkEpoch(seq uint64) uint64 { return 1 + (seq-1)/forkEpochFrames }

// parentRows is what the parent wrote before it was forked: two thirds of the keys.
func parentRows() []Entry {
	var entries []Entry
	for key := range forkKeys {
		if key%3 > 0 {
			entries = append(entries, forkEntry(0, OpPut, key, fmt.Sprintf("parent-%d", key)), forkEntry(1, OpAppend, key, fmt.Sprintf("p%d", key)))
		}
	}
	return entries
}

// forkRows is what the fork holds after a seq.
func forkRows(seq uint64) modelView {
	rows := modelView{}
	for _, e := range parentRows() {
		apply(rows, e)
	}
	for n := uint64(1); n <= seq; n++ {
		for _, e := range forkFrame(n) {
			apply(rows, e)
		}
	}
	return rows
}

// forkServer is a server's part in the fork tests.
type forkServer struct {
	t *testing.T
	l *Lineage
}

func newForkServer(t *testing.T, st store.Store) forkServer {
	return forkServer{t, openLineage(t, st, Options{Lease: time.Hour})}
}

// open opens a session or, with the same token, finds it again.
func (f forkServer) open(job string, bases ...Base) *Session {
	f.t.Helper()
	ctx := f.t.Context()
	groups := Range{0, forkGroups - 1}
	result, err := f.l.Open(ctx, OpenRequest{Token: job, JobID: job, GroupCount: forkGroups, Range: groups, Bases: bases})
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.l.Attach(ctx, result.SessionID, job)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, state := range []struct {
		name string
		kind StateKind
	}{{"value", KindValue}, {"list", KindList}} {
		if _, err := s.RegisterState(ctx, state.name, state.kind); err != nil {
			f.t.Fatal(err)
		}
	}
	return s
}

// start writes the parent's rows and takes the snapshot that the fork starts from. The parent goes on: its rows are
// overwritten, but for the snapshot.
func (f forkServer) start() *Session {
	f.t.Helper()
	parent := f.open("parent")
	if err := parent.Write(f.t.Context(), 1, 1, parentRows()); err != nil {
		f.t.Fatal(err)
	}
	takeSnapshot(f.t, parent, forkBase, 1)
	var entries []Entry
	for key := range forkKeys {
		entries = append(entries, forkEntry(uint16(key%2), OpPut, key, "later"))
	}
	if err := parent.Write(f.t.Context(), 2, 2, entries); err != nil {
		f.t.Fatal(err)
	}
	return parent
}

func (f forkServer) fork() *Session { return f.open("fork", Base{forkBase, Range{0, forkGroups - 1}}) }

// write goes on with the fork's frames, a snapshot after each epoch of which the newest three are kept, and reads some
// rows after each frame, until the context ends or fn returns false.
func (f forkServer) write(ctx context.Context, s *Session, fn func(seq uint64) bool) {
	rows := forkRows(s.AppliedSeq())
	for seq := s.AppliedSeq() + 1; ctx.Err() == nil; seq++ {
		entries := forkFrame(seq)
		if err := s.Write(f.t.Context(), seq, forkEpoch(seq), entries); err != nil {
			f.t.Errorf("write %d: %v", seq, err)
			return
		}
		for _, e := range entries {
			apply(rows, e)
		}
		f.readSome(s, rows, seq)
		if seq%forkEpochFrames == 0 {
			f.endEpoch(s, forkEpoch(seq))
		}
		if !fn(seq) {
			return
		}
	}
}

func (f forkServer) endEpoch(s *Session, epoch uint64) {
	takeSnapshot(f.t, s, fmt.Sprintf("fork-%d", epoch), epoch)
	if epoch > 3 {
		if _, err := f.l.Release(f.t.Context(), fmt.Sprintf("fork-%d", epoch-3)); err != nil {
			f.t.Error(err)
		}
	}
}

func (f forkServer) readSome(s *Session, rows modelView, seq uint64) {
	keys := make([]Entry, 6)
	for i := range keys {
		keys[i] = forkEntry(uint16(i%2), OpNone, rand.IntN(forkKeys), "")
	}
	values, err := s.Read(f.t.Context(), keys)
	if err != nil {
		f.t.Errorf("read after %d: %v", seq, err)
		return
	}
	for i, e := range keys {
		want, known := rows[modelRow{int(e.State), e.Group, string(e.Key)}]
		if known != (values[i] != nil) || want != string(values[i]) {
			f.t.Errorf("after %d: %s of state %d is %q, expected %q (%v)", seq, e.Key, e.State, values[i], want, known)
		}
	}
}

// check compares all that a session sees with what it should.
func (f forkServer) check(s *Session, want modelView) {
	f.t.Helper()
	found := modelView{}
	for state := range uint16(2) {
		request := ScanRequest{State: state, Range: Range{0, forkGroups - 1}, Order: OrderKeyGroup, LimitRows: 300}
		for done := false; !done; {
			var rows []Entry
			var err error
			if rows, done, err = s.Scan(f.t.Context(), request); err != nil {
				f.t.Fatal(err)
			}
			for _, r := range rows {
				found[modelRow{int(state), r.Group, string(r.Key)}] = string(r.Value)
				request.Resume, request.AfterGroup, request.AfterKey = true, r.Group, r.Key
			}
		}
	}
	if !maps.Equal(found, want) {
		f.t.Fatalf("session %d sees %d rows, not the %d expected ones", s.ID(), len(found), len(want))
	}
}

// checkSnapshots compares the fork's snapshots with what they should show, and returns the newest epoch.
func (f forkServer) checkSnapshots() (newest uint64) {
	f.t.Helper()
	snapshots, err := f.l.Snapshots(f.t.Context(), "fork")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, info := range snapshots {
		want, found := forkRows(info.Epoch*forkEpochFrames), modelView{}
		reader, err := f.l.OpenReader(f.t.Context(), ReadRequest{SnapshotID: info.ID})
		if err != nil {
			f.t.Fatal(err)
		}
		for {
			rows, err := reader.Next(f.t.Context())
			if err != nil {
				f.t.Fatal(err)
			}
			if len(rows) == 0 {
				break
			}
			for _, r := range rows {
				state := 0
				if reader.States()[r.State].Name == "list" {
					state = 1
				}
				found[modelRow{state, r.Group, string(r.Key)}] = string(r.Value)
			}
		}
		if err := reader.Close(f.t.Context()); err != nil {
			f.t.Fatal(err)
		}
		if !maps.Equal(found, want) {
			f.t.Fatalf("snapshot %s shows %d rows, not the %d expected ones", info.ID, len(found), len(want))
		}
		newest = max(newest, info.Epoch)
	}
	return newest
}

// finish ends the parent and all snapshots: the fork alone must be left, exact, and restorable.
func (f forkServer) finish(parent, fork *Session, seq uint64) {
	f.t.Helper()
	ctx := f.t.Context()
	if err := parent.Close(ctx); err != nil {
		f.t.Fatal(err)
	}
	snapshots, err := f.l.Snapshots(ctx, "")
	if err != nil {
		f.t.Fatal(err)
	}
	for _, s := range snapshots {
		if _, err := f.l.Release(ctx, s.ID); err != nil {
			f.t.Fatal(err)
		}
	}
	if _, err := f.l.Collect(ctx, false); err != nil {
		f.t.Fatal(err)
	}
	report, err := f.l.Collect(ctx, true)
	if err != nil || report.RemovedRows+report.RemovedVersions+report.DroppedSpaces > 0 {
		f.t.Fatalf("garbage after a collection: %+v, %v", report, err)
	}
	spaces, err := f.l.Spaces(ctx, true)
	if err != nil {
		f.t.Fatal(err)
	}
	want := forkRows(seq)
	if len(spaces) != 1 || int(spaces[0].Rows) != len(want) || int(spaces[0].Versions) != len(want) {
		f.t.Fatalf("row spaces %+v are left, expected one of %d rows", spaces, len(want))
	}
	f.check(fork, want)
	takeSnapshot(f.t, fork, "last", forkEpoch(seq)+1)
	f.check(f.open("grandchild", Base{"last", Range{0, forkGroups - 1}}), want)
	if err := fork.Close(ctx); err != nil {
		f.t.Fatal(err)
	}
	f.check(f.open("successor", Base{"last", Range{0, forkGroups - 1}}), want)
}

// flattenInSteps flattens a session in small pages until it is done or the context ends.
func flattenInSteps(ctx context.Context, s *Session) error {
	f := newFlattening(s.attached)
	f.page, f.cutInterval = 24, 10*time.Millisecond
	for !f.done && ctx.Err() == nil {
		if _, err := f.step(ctx); err != nil {
			return err
		}
		if err := pause(ctx, 200*time.Microsecond); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// TestFlattenWhileWriting flattens a fork while it writes, reads, takes and releases snapshots, and the sweeper runs.
func TestFlattenWhileWriting(t *testing.T) {
	f := newForkServer(t, memory.New())
	parent, fork := f.start(), f.fork()
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	flattened := make(chan error, 1)
	others.Go(func() { flattened <- flattenInSteps(ctx, fork) })
	others.Go(func() {
		for ctx.Err() == nil {
			if _, err := f.l.collect(ctx, false); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	last, ended := uint64(0), false
	f.write(t.Context(), fork, func(seq uint64) bool {
		last = seq
		select {
		case err := <-flattened:
			if err != nil {
				t.Errorf("flatten: %v", err)
			}
			ended = true
		default:
		}
		// Some frames more for after the cut.
		return !ended || seq%(5*forkEpochFrames) != 0
	})
	cancel()
	others.Wait()
	if t.Failed() {
		return
	}
	if n := layeredGroups(fork.parts); n > 0 {
		t.Fatalf("%d key groups still have layers", n)
	}
	f.check(fork, forkRows(last))
	f.checkSnapshots()
	f.finish(parent, fork, last)
}

// TestFlattenStopsWhenFenced has the fork's next attempt take over in the middle: the flattening of the older one ends,
// that of the newer one comes to the end.
func TestFlattenStopsWhenFenced(t *testing.T) {
	f := newForkServer(t, memory.New())
	parent, fork := f.start(), f.fork()
	f.write(t.Context(), fork, func(seq uint64) bool { return seq < 2*forkEpochFrames })
	older := newFlattening(fork.attached)
	older.page, older.cutInterval = 8, 0
	for older.group < 2 {
		if _, err := older.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	result, err := f.l.Open(t.Context(), OpenRequest{Token: "next", JobID: "fork", GroupCount: forkGroups,
		Range: Range{0, forkGroups - 1}, Bases: []Base{{"fork-1", Range{0, forkGroups - 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil && !older.done {
		_, err = older.step(t.Context())
	}
	if !errors.Is(err, ErrFenced) {
		t.Fatalf("the older session's flattening ended with %v", err)
	}
	next, err := f.l.Attach(t.Context(), result.SessionID, "next")
	if err != nil {
		t.Fatal(err)
	}
	for i, state := range []string{"value", "list"} {
		if _, err := next.RegisterState(t.Context(), state, []StateKind{KindValue, KindList}[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := flattenInSteps(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	f.finish(parent, next, forkEpochFrames)
}

// TestFlattenLeftBehind has a fork move to another server, be flattened there and delete rows, and come back: the first
// server goes on with what it read before, which must not come to life again.
func TestFlattenLeftBehind(t *testing.T) {
	st := memory.New()
	first, second := newForkServer(t, st), newForkServer(t, st)
	parent, fork := first.start(), first.fork()
	behind := newFlattening(fork.attached)
	behind.page = 1
	for range 4 { // the store's pages grow, so that one is half used
		if _, err := behind.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fork = second.fork()
	if err := flattenInSteps(t.Context(), fork); err != nil {
		t.Fatal(err)
	}
	var deletes []Entry
	for key := range forkKeys {
		deletes = append(deletes, forkEntry(0, OpDelete, key, ""), forkEntry(1, OpDelete, key, ""))
	}
	if err := fork.Write(t.Context(), 1, 1, deletes); err != nil {
		t.Fatal(err)
	}
	if err := parent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := second.l.Release(t.Context(), forkBase); err != nil {
		t.Fatal(err)
	}
	if _, err := second.l.Collect(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	fork = first.fork()
	if fork.attached != behind.a || layeredGroups(fork.parts) > 0 {
		t.Fatalf("the first server has %v", fork.parts)
	}
	var err error
	for err == nil && !behind.done {
		_, err = behind.step(t.Context()) // it may find a row space gone
	}
	first.check(fork, modelView{})
	if size, err := st.Bytes(t.Context()); err != nil || size > 0 {
		t.Fatalf("%d bytes of rows are left, %v", size, err)
	}
}

// lostAnswers is a store that commits changes of sessions' records and then says that it does not know.
type lostAnswers struct {
	store.Store
	lose bool
}

type lostAnswersTx struct {
	store.Tx
	lost *bool
}

func (s *lostAnswers) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	lost := false
	commit, err := s.Store.Update(ctx, func(tx store.Tx) error { return fn(lostAnswersTx{tx, &lost}) })
	if err == nil && lost && s.lose {
		return nil, store.ErrUnavailable
	}
	return commit, err
}

func (t lostAnswersTx) PutMeta(key string, value []byte) error {
	*t.lost = *t.lost || strings.HasPrefix(key, sessionPrefix)
	return t.Tx.PutMeta(key, value)
}

// TestFlattenOfUnknownOutcome loses the answer to a cut. No snapshot may be taken with layers that may be gone, until
// a new stream has found out.
func TestFlattenOfUnknownOutcome(t *testing.T) {
	st := &lostAnswers{Store: memory.New()}
	f := newForkServer(t, st)
	parent, fork := f.start(), f.fork()
	st.lose = true
	if err := flattenInSteps(t.Context(), fork); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("the flattening ended with %v", err)
	}
	st.lose = false
	if _, _, err := fork.Snapshot(t.Context(), SnapshotRequest{ID: "s", Epoch: 1, Kind: SnapshotCheckpoint}); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("a snapshot of a session that may see less: %v", err)
	}
	fork = f.fork()
	if n := layeredGroups(fork.parts); n == forkGroups {
		t.Fatal("the cut was not committed")
	}
	if err := flattenInSteps(t.Context(), fork); err != nil {
		t.Fatal(err)
	}
	f.finish(parent, fork, 0)
}

// forkDir tells the test binary that it is the process to be killed.
const forkDir = "FLINKNDB_TEST_FORK_DIR"

// TestFlattenSurvivesKills kills a process again and again in which a fork writes while it is flattened. What the store
// holds then is what the fork has written, and the next process goes on from there until no layers are left.
func TestFlattenSurvivesKills(t *testing.T) {
	if dir := os.Getenv(forkDir); dir != "" {
		flattenForever(t, dir)
		return
	}
	dir := t.TempDir()
	withPebble(t, dir, func(f forkServer) {
		f.start()
		f.fork()
	})
	for round := 1; ; round++ {
		runUntilKilled(t, dir, 10+rand.IntN(20*round))
		layered := uint64(0)
		withPebble(t, dir, func(f forkServer) {
			fork := f.fork()
			layered = layeredGroups(fork.parts)
			t.Logf("kill %d: %d frames, %d key groups with layers", round, fork.AppliedSeq(), layered)
			f.check(fork, forkRows(fork.AppliedSeq()))
			f.checkSnapshots()
		})
		if layered == 0 {
			break
		}
		if round == 60 {
			t.Fatal("the flattening does not come to an end")
		}
	}
	withPebble(t, dir, func(f forkServer) {
		fork := f.fork()
		f.finish(f.open("parent"), fork, fork.AppliedSeq())
	})
}

func withPebble(t *testing.T, dir string, fn func(forkServer)) {
	t.Helper()
	st, err := pebble.Open(dir, pebble.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	fn(newForkServer(t, st))
}

// runUntilKilled starts a process on the store and kills it once some frames were written.
func runUntilKilled(t *testing.T, dir string, frames int) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run", "^TestFlattenSurvivesKills$")
	child.Env = append(os.Environ(), forkDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines, seen := bufio.NewScanner(out), 0
	for seen < frames && lines.Scan() {
		if _, err := strconv.Atoi(lines.Text()); err != nil {
			t.Errorf("the process said %q", lines.Text())
		}
		seen++
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if seen < frames || t.Failed() {
		t.Fatalf("the process ended by itself after %d frames", seen)
	}
}

// flattenForever is the process to be killed.
func flattenForever(t *testing.T, dir string) {
	withPebble(t, dir, func(f forkServer) {
		fork := f.fork()
		var flattener sync.WaitGroup
		flattener.Go(func() {
			if err := flattenInSteps(t.Context(), fork); err != nil {
				fmt.Println(err)
			}
		})
		f.write(t.Context(), fork, func(seq uint64) bool {
			fmt.Println(seq)
			return !t.Failed()
		})
	})
}
