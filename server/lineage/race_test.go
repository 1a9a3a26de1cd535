package lineage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store/memory"
)

// TestFencedWriterChangesNothing races a writer with the session that takes its place: whatever the
// older one wrote after the newer one was opened must be invisible, whatever came before must be in
// the snapshot.
func TestFencedWriterChangesNothing(t *testing.T) {
	ctx := context.Background()
	for round := range 50 {
		l, err := New(ctx, memory.New(), Options{Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		old := openForRace(t, l, "old", nil)
		put := func(s *Session, seq, epoch uint64, value string) error {
			return s.Write(ctx, seq, epoch, []Entry{{Op: OpPut, Key: []byte("k"), Value: []byte(value)}})
		}
		if err := put(old, 1, 1, "kept"); err != nil {
			t.Fatal(err)
		}
		_, commit, err := old.Snapshot(ctx, SnapshotRequest{ID: "s", Epoch: 1, Kind: SnapshotCheckpoint})
		if err != nil {
			t.Fatal(err)
		}
		if err := commit.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			for seq := uint64(2); ; seq++ {
				if err := put(old, seq, 2, fmt.Sprintf("lost-%d", seq)); err != nil {
					ended <- err
					return
				}
			}
		}()
		young := openForRace(t, l, "young", []Base{{"s", Range{0, 0}}})
		for range 20 {
			values, err := young.Read(ctx, []Entry{{Key: []byte("k")}})
			if err != nil {
				t.Fatal(err)
			}
			if string(values[0]) != "kept" {
				t.Fatalf("round %d: the new session sees %q", round, values[0])
			}
		}
		if err := <-ended; !errors.Is(err, ErrFenced) {
			t.Fatalf("the old session ended with %v", err)
		}
		if err := put(young, 1, 1, "new"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReleaseAtAnotherServer forks a session at a server that the session's own server hears nothing of, and releases
// the snapshot at the latter: what the fork sees must stay when the session goes on.
func TestReleaseAtAnotherServer(t *testing.T) {
	st := memory.New()
	first, second := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	parent := openForRace(t, first, "parent", nil)
	putKeys(t, parent, 1, 1, 0, 10)
	takeSnapshot(t, parent, "base", 1)
	result, err := second.Open(t.Context(), OpenRequest{Token: "fork", JobID: "fork", GroupCount: 1, Bases: []Base{{"base", Range{0, 0}}}})
	if err != nil {
		t.Fatal(err)
	}
	fork := reattach(t, second, result.SessionID, "fork")
	if existed, err := first.Release(t.Context(), "base"); err != nil || !existed {
		t.Fatal(existed, err)
	}
	putKeys(t, parent, 2, 2, 0, 10)
	for i := range 10 {
		values, err := fork.Read(t.Context(), []Entry{{Key: fmt.Appendf(nil, "key-%d", i)}})
		if err != nil || string(values[0]) != "1" {
			t.Fatalf("key %d: the fork sees %q, %v", i, values[0], err)
		}
	}
}

func openForRace(t *testing.T, l *Lineage, token string, bases []Base) *Session {
	t.Helper()
	ctx := context.Background()
	result, err := l.Open(ctx, OpenRequest{Token: token, JobID: "job", GroupCount: 1, Bases: bases})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Attach(ctx, result.SessionID, token)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RegisterState(ctx, "value", KindValue); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReadsWhileWritingAndFlattening reads a fork's rows, as reads that overtake do, while it is written to and made
// independent, and its parent's rows go away.
func TestReadsWhileWritingAndFlattening(t *testing.T) {
	st := memory.New()
	l := openLineage(t, st, Options{Lease: time.Hour})
	parent := openForRace(t, l, "parent", nil)
	const rows = 500
	putKeys(t, parent, 1, 1, 0, rows)
	takeSnapshot(t, parent, "base", 1)
	fork := openForRace(t, l, "fork", []Base{{"base", Range{0, 0}}})
	if err := parent.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Release(t.Context(), "base"); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	var flattened atomic.Bool
	others.Go(func() {
		if err := flattenInSteps(ctx, fork); err != nil && ctx.Err() == nil {
			t.Errorf("flatten: %v", err)
		}
		flattened.Store(true)
	})
	others.Go(func() {
		for ctx.Err() == nil {
			if _, err := l.collect(ctx, false); err != nil && ctx.Err() == nil {
				t.Errorf("collect: %v", err)
			}
		}
	})
	others.Go(func() {
		for seq := uint64(1); ctx.Err() == nil; seq++ {
			value := fmt.Append(nil, seq)
			err := fork.Write(ctx, seq, 1, []Entry{{Op: OpPut, Key: []byte("a"), Value: value}, {Op: OpPut, Key: []byte("b"), Value: value}})
			if err != nil && ctx.Err() == nil {
				t.Errorf("write: %v", err)
			}
		}
	})
	older := 0
	for after := 0; after < 200 && !t.Failed(); after++ {
		if !flattened.Load() || older == 0 { // until the fork is independent and the writer has begun
			after = 0
		}
		key := rand.IntN(rows)
		values, err := fork.Read(ctx, []Entry{{Key: fmt.Appendf(nil, "key-%d", key)}, {Key: []byte("a")}})
		if err != nil {
			t.Fatal(err)
		}
		if string(values[0]) != "1" {
			t.Fatalf("key %d: the fork sees %q", key, values[0])
		}
		newer := 0
		if values[1] != nil {
			if newer, err = strconv.Atoi(string(values[1])); err != nil {
				t.Fatal(err)
			}
		}
		if newer < older {
			t.Fatalf("read %d after %d", newer, older)
		}
		older = newer
	}
	if older == 0 {
		t.Fatal("no write was seen")
	}
}
