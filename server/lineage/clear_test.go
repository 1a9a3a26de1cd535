package lineage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// largestUpdate notes how many rows a transaction changes at most.
type largestUpdate struct {
	store.Store
	rows int
}

type sizedTx struct {
	store.Tx
	rows *int
}

var errKilled = errors.New("killed")

func (s *largestUpdate) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	rows := 0
	commit, err := s.Store.Update(ctx, func(tx store.Tx) error {
		rows = 0
		return fn(sizedTx{tx, &rows})
	})
	if err == nil {
		s.rows = max(s.rows, rows)
	}
	return commit, err
}

func (t sizedTx) Put(rows []store.Row) error {
	*t.rows += len(rows)
	return t.Tx.Put(rows)
}

func (t sizedTx) Delete(keys []store.RowKey) error {
	*t.rows += len(keys)
	return t.Tx.Delete(keys)
}

const (
	largeMap       = 3*clearRows + 100
	largeMapFrame  = 1000
	largeMapFrames = (largeMap + largeMapFrame - 1) / largeMapFrame
)

// fillLargeMap writes a map that is cleared in more than one transaction, and a row beside it, and takes a snapshot.
func fillLargeMap(t *testing.T, s *Session) {
	t.Helper()
	for f := range largeMapFrames {
		entries := []Entry{{Op: OpPut, Key: []byte("other"), Value: []byte("1")}}
		for i := f * largeMapFrame; i < min((f+1)*largeMapFrame, largeMap); i++ {
			entries = append(entries, Entry{Op: OpPut, Key: fmt.Appendf(nil, "map-%d", i), Value: []byte("1")})
		}
		if err := s.Write(t.Context(), uint64(f+1), 1, entries); err != nil {
			t.Fatal(err)
		}
	}
	takeSnapshot(t, s, "full", 1)
}

// clearLargeMap is a frame with changes before and behind the clear, of rows below its prefix and beside it.
func clearLargeMap(t *testing.T, s *Session) error {
	t.Helper()
	return s.Write(t.Context(), largeMapFrames+1, 2, []Entry{
		{Op: OpPut, Key: []byte("map-before"), Value: []byte("2")},
		{Op: OpPut, Key: []byte("map-1"), Value: []byte("2")},
		{Op: OpPut, Key: []byte("other"), Value: []byte("2")},
		{Op: OpDeletePrefix, Key: []byte("map-")},
		{Op: OpPut, Key: []byte("map-2"), Value: []byte("3")},
	})
}

// visibleRows reads all rows of a session's only state.
func visibleRows(t *testing.T, s *Session) map[string]string {
	t.Helper()
	rows := map[string]string{}
	scan, err := newGroupScan(s.attached, storeReader{t.Context(), s.l.store}, 0, 0, nil, nil, pageRows)
	if err != nil {
		t.Fatal(err)
	}
	for {
		row, ok, err := scan.next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return rows
		}
		rows[string(row.Key)] = string(row.Value)
	}
}

// checkCleared demands what the frame leaves, and the whole map for whoever comes from the snapshot.
func checkCleared(t *testing.T, l *Lineage, s *Session) {
	t.Helper()
	if rows := visibleRows(t, s); len(rows) != 2 || rows["map-2"] != "3" || rows["other"] != "2" {
		t.Errorf("after the clear there are %d rows: %.200v", len(rows), rows)
	}
	fork := openForRace(t, l, "from the snapshot", []Base{{"full", Range{0, 0}}})
	if rows := visibleRows(t, fork); len(rows) != largeMap+1 || rows["map-1"] != "1" || rows["other"] != "1" {
		t.Errorf("the snapshot has %d rows, want %d", len(rows), largeMap+1)
	}
}

// TestLargeMapIsClearedInSeveralTransactions counts the rows that each of them changes.
func TestLargeMapIsClearedInSeveralTransactions(t *testing.T) {
	sized := &largestUpdate{Store: memory.New()}
	l := openLineage(t, sized, Options{})
	s := openForRace(t, l, "job", nil)
	fillLargeMap(t, s)
	sized.rows = 0
	if err := clearLargeMap(t, s); err != nil {
		t.Fatal(err)
	}
	if limit := clearRows + pageRows; sized.rows > limit {
		t.Errorf("a transaction changed %d rows, want at most %d", sized.rows, limit)
	}
	checkCleared(t, l, s)
}

// TestKilledWhileClearing ends a server behind each transaction of a clear: neither the client that sends its frame again
// to another one, nor a job that comes from the snapshot, finds anything but what it should.
func TestKilledWhileClearing(t *testing.T) {
	for done := 0; ; done++ {
		st := &hookedStore{Store: memory.New()}
		s := openForRace(t, openLineage(t, st, Options{}), "job", nil)
		fillLargeMap(t, s)
		st.failAfter(done, errKilled)
		err := clearLargeMap(t, s)
		st.before = nil
		if err == nil {
			if done < 3 {
				t.Fatalf("the clear took %d transactions: nothing was interrupted", done)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		l := openLineage(t, st, Options{})
		again := reattach(t, l, s.record.ID, "job")
		if durable, _, err := again.commits.durable(); err != nil || durable > largeMapFrames {
			t.Fatalf("%d transactions: %d writes are durable, %v: the clear was not applied", done, durable, err)
		}
		if err := clearLargeMap(t, again); err != nil {
			t.Fatal(err)
		}
		checkCleared(t, l, again)
	}
}

// TestPartOfAClearIsNotDurableAsTheFrame has the last transaction of a clear fail: the frame must not be acknowledged.
func TestPartOfAClearIsNotDurableAsTheFrame(t *testing.T) {
	st := &hookedStore{Store: memory.New()}
	s := openForRace(t, openLineage(t, st, Options{}), "job", nil)
	fillLargeMap(t, s)
	st.failAfter(2, errKilled)
	if err := clearLargeMap(t, s); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	s.commits.awaitIdle()
	if durable, _, err := s.commits.durable(); err != nil || durable != largeMapFrames {
		t.Errorf("%d writes are durable, %v; want %d", durable, err, largeMapFrames)
	}
}

// awaitIdle waits until all commits that were added have been waited for.
func (q *commitQueue) awaitIdle() {
	for working := true; working; runtime.Gosched() {
		q.mu.Lock()
		working = q.working
		q.mu.Unlock()
	}
}
