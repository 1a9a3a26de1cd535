package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/tests/stateclient"
)

const (
	writers     = 16
	deafReaders = 4
	silent      = 50

	rowsOfFrame   = 1000
	rowBytes      = 1000
	keysOfWriter  = 5000
	largeEvery    = 10
	largeBytes    = 8 << 20
	unackedFrames = 24 // a writer's own bound: together far more than the server may hold

	inflightBytes = 96 << 20
	maxValueBytes = 16 << 20
	cacheBytes    = 64 << 20
	maxSessions   = 24
)

// soakTime is how long to overload the server: FLINKNDB_SOAK_MINUTES, or 15 seconds.
func soakTime(t *testing.T) time.Duration {
	value := os.Getenv("FLINKNDB_SOAK_MINUTES")
	if value == "" {
		return 15 * time.Second
	}
	minutes, err := strconv.ParseFloat(value, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("FLINKNDB_SOAK_MINUTES: found %q, a number above 0 is needed", value)
	}
	return time.Duration(minutes * float64(time.Minute))
}

// TestOverload has many sessions write as fast as they can, some large values among it, beside clients that do
// not read their answers, stop half way, or say nothing. Memory stays below the sum of what was configured,
// another session is served all the time, and afterwards everything is there.
func TestOverload(t *testing.T) {
	s := startServer(t, "--max-inflight-bytes", fmt.Sprint(inflightBytes), "--max-value-bytes", fmt.Sprint(maxValueBytes),
		"--cache-bytes", fmt.Sprint(cacheBytes), "--max-sessions", fmt.Sprint(maxSessions))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	witness := s.session(ctx, 1)
	s.misbehave(ctx)
	end := time.Now().Add(soakTime(t))
	all := make([]*writer, writers)
	var working sync.WaitGroup
	for i := range all {
		all[i] = newWriter(s.session(ctx, 100+i), i)
		working.Go(func() { all[i].run(end) })
	}
	slowest, checks := time.Duration(0), 0
	inflight := 0.0
	for time.Now().Before(end) {
		start := time.Now()
		check(t, witness, checks)
		slowest = max(slowest, time.Since(start))
		checks++
		inflight = max(inflight, s.metric("flinkndb_inflight_bytes"))
		time.Sleep(10 * time.Millisecond) // this session is no load
	}
	working.Wait()
	var written uint64
	for _, w := range all {
		w.verify(t)
		written += w.acked.Load()
	}
	bound, peak := int64(s.metric("flinkndb_memory_bound_bytes")), s.peakBytes()
	t.Logf("%d frames written, %d checks of another session, the slowest took %s; at most %.0f MiB in flight; peak memory %d MiB, bound %d MiB",
		written, checks, slowest, inflight/(1<<20), peak>>20, bound>>20)
	if peak > bound {
		t.Errorf("the server took %d MiB, configured are %d MiB", peak>>20, bound>>20)
	}
	if inflight > inflightBytes || inflight == 0 {
		t.Errorf("%.0f bytes in flight, allowed are %d", inflight, inflightBytes)
	}
}

// check has a session write a row and read it.
func check(t *testing.T, s *stateclient.Session, number int) {
	t.Helper()
	want := fmt.Sprint(number)
	if _, err := s.Write(stateclient.Put("k", []byte(want))); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read("k"); err != nil || string(got) != want {
		t.Fatalf("read %q instead of %q: %v", got, want, err)
	}
}

// misbehave starts clients that no shim is.
func (s *server) misbehave(ctx context.Context) {
	s.t.Helper()
	for i := range deafReaders {
		deaf := s.session(ctx, 50+i)
		if _, err := deaf.Write(stateclient.Put("k", make([]byte, 1<<20))); err != nil {
			s.t.Fatal(err)
		}
		go func() {
			for deaf.Ask("k") == nil { // ends with the context
			}
		}()
	}
	half := s.session(ctx, 60)
	if err := half.Stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Part{Part: &pb.FramePart{TotalBytes: 1 << 20, Data: []byte("x")}}}); err != nil {
		s.t.Fatal(err)
	}
	for range silent {
		conn, err := s.silent()
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = conn.Close() })
	}
}

// writer writes rows whose values say which frame they are from.
type writer struct {
	session *stateclient.Session
	number  int
	last    map[string]uint64 // seq that wrote each key last
	acked   atomic.Uint64
	room    chan struct{}
	ended   chan struct{}

	mu     sync.Mutex
	failed error
}

// fail notes the first failure.
func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = err
	}
}

func (w *writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func newWriter(s *stateclient.Session, number int) *writer {
	w := &writer{session: s, number: number, last: map[string]uint64{}, room: make(chan struct{}, unackedFrames), ended: make(chan struct{})}
	return w
}

func (w *writer) run(end time.Time) {
	go w.follow()
	var frames uint64
	for time.Now().Before(end) && w.failure() == nil {
		select {
		case w.room <- struct{}{}:
			frames++
			w.fail(w.write(frames))
		case <-w.ended:
			return
		}
	}
	for w.acked.Load() < frames && w.failure() == nil {
		select {
		case <-w.ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
	w.fail(w.session.Ask("none")) // its answer ends follow
	<-w.ended
}

// follow gives room back for what is durable.
func (w *writer) follow() {
	defer close(w.ended)
	for {
		frame, err := w.session.Receive()
		if err != nil || frame.GetReadResult() != nil {
			w.fail(err)
			return
		}
		for durable := frame.GetWriteAck().GetDurableSeq(); w.acked.Load() < durable; w.acked.Add(1) {
			<-w.room
		}
	}
}

func (w *writer) write(seq uint64) error {
	if seq%largeEvery == 0 {
		w.last["large"] = seq
		_, err := w.session.Write(stateclient.Put("large", valueOf(seq, largeBytes)))
		return err
	}
	rows := make([]*pb.Entry, rowsOfFrame)
	for i := range rows {
		key := fmt.Sprintf("key-%d", (int(seq)*rowsOfFrame+i)%keysOfWriter)
		w.last[key] = seq
		rows[i] = stateclient.Put(key, valueOf(seq, rowBytes))
	}
	_, err := w.session.Write(rows...)
	return err
}

func valueOf(seq uint64, size int) []byte {
	value := make([]byte, size)
	for at := 0; at+8 <= size; at += 512 {
		binary.BigEndian.PutUint64(value[at:], seq)
	}
	return value
}

// verify reads back some rows, the large one among them.
func (w *writer) verify(t *testing.T) {
	t.Helper()
	if err := w.failure(); err != nil {
		t.Errorf("writer %d: %v", w.number, err)
		return
	}
	checked := 0
	for key, seq := range w.last {
		size := rowBytes
		if key == "large" {
			size = largeBytes
		} else if checked++; checked > 100 {
			continue
		}
		got, err := w.session.Read(key)
		if err != nil || !bytes.Equal(got, valueOf(seq, size)) {
			t.Errorf("writer %d: %s is not what frame %d wrote (%d bytes, %v)", w.number, key, seq, len(got), err)
			return
		}
	}
}
