package lineage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// readStore has something happen after rows were read and before the reader gets them, and counts them.
type readStore struct {
	store.Store
	mu    sync.Mutex
	after func()
	rows  int
}

func (s *readStore) Get(ctx context.Context, keys []store.RowKey) ([][]byte, error) {
	raws, err := s.Store.Get(ctx, keys)
	s.mu.Lock()
	s.rows += len(keys)
	after := s.after
	s.after = nil
	s.mu.Unlock()
	if after != nil {
		after()
	}
	return raws, err
}

func entryOf(op Op, key, value string) Entry {
	e := Entry{Op: op, Key: []byte(key)}
	if op == OpPut || op == OpAppend {
		e.Value = []byte(value)
	}
	return e
}

func mustWrite(t *testing.T, s *Session, seq uint64, entries ...Entry) {
	t.Helper()
	if err := s.Write(t.Context(), seq, 1, entries); err != nil {
		t.Fatal(err)
	}
}

// expectRow reads a row, and demands a value ("-" for none) and from where it comes.
func expectRow(t *testing.T, st *readStore, s *Session, key, want string, cached bool) {
	t.Helper()
	before := st.rows
	values, err := s.Read(t.Context(), []Entry{{Key: []byte(key)}})
	if err != nil {
		t.Fatal(err)
	}
	found := "-"
	if values[0] != nil {
		found = string(values[0])
	}
	if found != want || (st.rows == before) != cached {
		t.Errorf("row %q is %q, from the cache: %t; expected %q, %t", key, found, st.rows == before, want, cached)
	}
}

func TestRowCacheAnswers(t *testing.T) {
	st := &readStore{Store: memory.New()}
	s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
	mustWrite(t, s, 1, entryOf(OpPut, "put", "1"), entryOf(OpPut, "empty", ""), entryOf(OpPut, "deleted", "1"), entryOf(OpDelete, "deleted", ""))
	expectRow(t, st, s, "put", "1", true)
	expectRow(t, st, s, "empty", "", true)
	expectRow(t, st, s, "deleted", "-", true)
	expectRow(t, st, s, "never", "-", false)
	expectRow(t, st, s, "never", "-", true)
	mustWrite(t, s, 2, entryOf(OpPut, "never", "2"))
	expectRow(t, st, s, "never", "2", true)
	again := reattach(t, s.l, s.ID(), "a")
	expectRow(t, st, again, "put", "1", false)
	expectRow(t, st, again, "put", "1", true)
	mustWrite(t, again, 3, entryOf(OpDeletePrefix, "pu", ""))
	expectRow(t, st, again, "put", "-", false)
}

// TestRowCacheOfLists: what is appended continues what is there.
func TestRowCacheOfLists(t *testing.T) {
	st := &readStore{Store: memory.New()}
	s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
	list, err := s.RegisterState(t.Context(), "list", KindList)
	if err != nil {
		t.Fatal(err)
	}
	key := Entry{State: list, Key: []byte("k")}
	element := func(op Op, value string) Entry {
		return Entry{State: list, Op: op, Key: key.Key, Value: []byte(value)}
	}
	for i, want := range []string{"a", "a,b", "a,b,c"} {
		mustWrite(t, s, uint64(i+1), element(OpAppend, want[2*i:]))
		for range 2 {
			values, err := s.Read(t.Context(), []Entry{key})
			if err != nil || string(values[0]) != want {
				t.Fatalf("list is %q, error %v; expected %q", values[0], err, want)
			}
		}
	}
	mustWrite(t, s, 4, element(OpPut, "x"), element(OpAppend, "y"))
	if values, err := s.Read(t.Context(), []Entry{key}); err != nil || string(values[0]) != "x,y" {
		t.Errorf("list is %q, error %v; expected what was put and what was appended", values[0], err)
	}
}

// TestRowCacheForgetsWhatIsWrittenMeanwhile has a row written, in all ways, after a reader found it in the store and
// before it can be kept.
func TestRowCacheForgetsWhatIsWrittenMeanwhile(t *testing.T) {
	for name, write := range map[string]struct {
		e    Entry
		want string
	}{
		"put":    {entryOf(OpPut, "k", "new"), "new"},
		"delete": {entryOf(OpDelete, "k", ""), "-"},
		"clear":  {entryOf(OpDeletePrefix, "", ""), "-"},
	} {
		t.Run(name, func(t *testing.T) {
			st := &readStore{Store: memory.New()}
			s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
			mustWrite(t, s, 1, entryOf(OpPut, "k", "old"))
			s.seen.startStream() // forget
			st.after = func() { mustWrite(t, s, 2, write.e) }
			expectRow(t, st, s, "k", "old", false)
			before := st.rows
			values, err := s.Read(t.Context(), []Entry{{Key: []byte("k")}})
			if err != nil || (write.want == "-") != (values[0] == nil) || values[0] != nil && string(values[0]) != write.want {
				t.Errorf("row is %q, error %v, %d rows read; expected %q", values[0], err, st.rows-before, write.want)
			}
		})
	}
}

// TestRowCacheForgetsWhatWasReadMeanwhile has a row read while a transaction that writes it is under way: the reader
// finds the old value, and keeps it neither before nor after the transaction has ended.
func TestRowCacheForgetsWhatWasReadMeanwhile(t *testing.T) {
	for _, e := range []Entry{entryOf(OpPut, "k", "new"), entryOf(OpDeletePrefix, "", "")} {
		hooked := &hookedStore{Store: memory.New()}
		st := &readStore{Store: hooked}
		s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
		mustWrite(t, s, 1, entryOf(OpPut, "k", "old"))
		s.seen.startStream() // forget
		found, release, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
		hooked.once(func() { // the write has begun
			st.after = func() { close(found); <-release }
			go func() {
				defer close(finished)
				if _, err := s.Read(context.Background(), []Entry{{Key: []byte("k")}}); err != nil {
					t.Error(err)
				}
			}()
			<-found
		})
		mustWrite(t, s, 2, e)
		close(release)
		<-finished
		values, err := s.Read(t.Context(), []Entry{{Key: []byte("k")}})
		if err != nil || !bytes.Equal(values[0], e.Value) {
			t.Errorf("row is %q, error %v; expected %q", values[0], err, e.Value)
		}
	}
}

// TestRowCacheAfterUnknownOutcome: a write fails for the server and happens all the same, at once or later.
func TestRowCacheAfterUnknownOutcome(t *testing.T) {
	hooked := &hookedStore{Store: memory.New()}
	st := &readStore{Store: hooked}
	s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
	mustWrite(t, s, 1, entryOf(OpPut, "k", "old"))
	lost := errors.New("no answer")
	hooked.failAfter(0, lost)
	if err := s.Write(t.Context(), 2, 1, []Entry{entryOf(OpPut, "k", "new")}); !errors.Is(err, lost) {
		t.Fatalf("write: %v", err)
	}
	hooked.before = nil
	expectRow(t, st, s, "k", "old", false)
	expectRow(t, st, s, "k", "old", false) // not kept: the write may happen yet
	twin := &Session{attached: &attached{l: s.l, record: s.record, commits: newCommitQueue()}, stream: s.stream}
	twin.parts, twin.states, twin.empty = s.parts, s.states, s.empty
	mustWrite(t, twin, 2, entryOf(OpPut, "k", "new")) // it happens
	expectRow(t, st, s, "k", "new", false)
	expectRow(t, st, reattach(t, s.l, s.ID(), "a"), "k", "new", false)
}

// TestRowCacheAfterOtherServer: a stream at another server wrote.
func TestRowCacheAfterOtherServer(t *testing.T) {
	st := &readStore{Store: memory.New()}
	s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
	mustWrite(t, s, 1, entryOf(OpPut, "k", "here"))
	mustWrite(t, reattach(t, openLineage(t, st, Options{}), s.ID(), "a"), 2, entryOf(OpPut, "k", "there"))
	expectRow(t, st, reattach(t, s.l, s.ID(), "a"), "k", "there", false)
}

// TestRowCacheAfterRepeatedWrite: of writes that are repeated, a later one may have changed the same rows.
func TestRowCacheAfterRepeatedWrite(t *testing.T) {
	st := &readStore{Store: memory.New()}
	s := openForRace(t, openLineage(t, st, Options{}), "a", nil)
	mustWrite(t, s, 1, entryOf(OpPut, "k", "first"))
	mustWrite(t, s, 2, entryOf(OpPut, "k", "second"))
	mustWrite(t, s, 1, entryOf(OpPut, "k", "first"))
	expectRow(t, st, s, "k", "second", false)
}

func TestRowCacheIsBounded(t *testing.T) {
	const limit = 100_000
	st := &readStore{Store: memory.New()}
	l := openLineage(t, st, Options{RowCacheBytes: limit})
	s := openForRace(t, l, "a", nil)
	for seq := uint64(1); seq <= 50; seq++ {
		putKeys(t, s, seq, 1, int(seq)*100, int(seq+1)*100)
	}
	mustWrite(t, s, 51, entryOf(OpPut, "large", string(make([]byte, limit/maxCachedShare))))
	rows, held := l.rows.size()
	if held > limit || held < limit/2 || int64(rows)*cachedRowBytes > held {
		t.Errorf("%d rows of %d bytes are cached, allowed are %d", rows, held, limit)
	}
	expectRow(t, st, s, "key-5099", "1", true)
	expectRow(t, st, s, "key-100", "1", false)
	expectRow(t, st, s, "large", string(make([]byte, limit/maxCachedShare)), false)
	expectRow(t, st, s, "large", string(make([]byte, limit/maxCachedShare)), false)
}

// TestRowCacheRaces compares what is read after each write with what was written, while others read the same rows all
// the time and the cache is too small for them.
func TestRowCacheRaces(t *testing.T) {
	const keys, writes, readers = 40, 3000, 4
	l := openLineage(t, memory.New(), Options{RowCacheBytes: 30 * (cachedRowBytes + 30)})
	s := openForRace(t, l, "a", nil)
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Read(t.Context(), []Entry{keyOf(rand.IntN(keys)), keyOf(rand.IntN(keys))}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	defer reading.Wait()
	defer stop()
	random := rand.New(rand.NewPCG(1, 2))
	model := map[string]string{}
	for seq := uint64(1); seq <= writes; seq++ {
		mustWrite(t, s, seq, randomChanges(random, keys, seq, model)...)
		for i := range keys {
			key := keyOf(i)
			values, err := s.Read(t.Context(), []Entry{key})
			want, there := model[string(key.Key)]
			if err != nil || there != (values[0] != nil) || string(values[0]) != want {
				t.Fatalf("after write %d row %s is %q, error %v; expected %q, there: %t", seq, key.Key, values[0], err, want, there)
			}
		}
	}
	if l.rows.hits.Load() == 0 {
		t.Error("the cache has answered nothing")
	}
}

func keyOf(i int) Entry { return Entry{Key: fmt.Appendf(nil, "%02d", i)} }

// randomChanges makes a frame, and does the same to the model.
func randomChanges(random *rand.Rand, keys int, seq uint64, model map[string]string) []Entry {
	var entries []Entry
	for range 1 + random.IntN(6) {
		e := keyOf(random.IntN(keys))
		switch random.IntN(10) {
		case 0:
			e.Op, e.Key = OpDeletePrefix, e.Key[:1]
			for key := range model {
				if key[0] == e.Key[0] {
					delete(model, key)
				}
			}
		case 1, 2:
			e.Op = OpDelete
			delete(model, string(e.Key))
		default:
			e.Op, e.Value = OpPut, fmt.Appendf(nil, "%d", seq)
			model[string(e.Key)] = string(e.Value)
		}
		entries = append(entries, e)
	}
	return entries
}
