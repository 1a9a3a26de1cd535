package bridge_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// sendParts sends a frame as the shim does when it is large.
func (s *session) sendParts(frame *pb.ClientFrame) {
	s.t.Helper()
	raw, err := proto.Marshal(frame)
	if err != nil {
		s.t.Fatal(err)
	}
	total := uint32(len(raw))
	for len(raw) > 0 {
		n := min(len(raw), 1<<20)
		s.send(part(total, raw[:n]))
		raw, total = raw[n:], 0
	}
}

func part(total uint32, data []byte) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Part{Part: &pb.FramePart{TotalBytes: total, Data: data}}}
}

// readLarge returns a row's value, which may come in several frames.
func (s *session) readLarge(state uint32, key string) string {
	s.t.Helper()
	s.send(readFrame(state, key))
	result := s.receive().GetReadResult()
	if !result.GetLast() || len(result.GetRows().GetEntries()) != 1 {
		s.t.Fatalf("answer to a read: %d bytes", proto.Size(result))
	}
	return string(result.GetRows().GetEntries()[0].GetValue())
}

// works demands that a session can write and read.
func (s *session) works(t testing.TB, value string) {
	t.Helper()
	s.t = t
	s.write(put("k", value))
	if got := s.read(0, "k"); got != value {
		t.Fatalf("the other session reads %q", got)
	}
}

// TestLargeFrameInParts writes and reads a value of the largest size, and refuses one byte more.
func TestLargeFrameInParts(t *testing.T) {
	const limit = 5 << 20
	client := dial(t, startServerOn(t, memory.New(), lineage.Options{MaxValueBytes: limit}, bridge.Options{}))
	s := open(t, client, "a")
	value := strings.Repeat("0123456789abcdef", limit/16)
	s.seq++
	s.sendParts(writeFrame(s.seq, put("k", value)))
	if got := s.readLarge(0, "k"); got != value {
		t.Errorf("%d bytes came back", len(got))
	}
	s.sendParts(writeFrame(s.seq+1, put("k", value+"x")))
	failure := s.receive().GetError()
	for _, want := range []string{`state "v"`, fmt.Sprint(limit), fmt.Sprint(limit + 1), "--max-value-bytes"} {
		if failure.GetCode() != pb.ErrorCode_ERROR_VALUE_TOO_LARGE || !strings.Contains(failure.GetMessage(), want) {
			t.Errorf("%v: no %s", failure, want)
		}
	}
	if s.attach(); s.readLarge(0, "k") != value {
		t.Error("the value before is gone")
	}
}

// TestBadParts refuses parts that make no frame, and what a client sends that ignores the limits, while
// another session goes on.
func TestBadParts(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{}))
	other := open(t, client, "b")
	nested, err := proto.Marshal(part(1, []byte("x")))
	if err != nil {
		t.Fatal(err)
	}
	heartbeat := &pb.ClientFrame{Frame: &pb.ClientFrame_Heartbeat{Heartbeat: &pb.Heartbeat{}}}
	for name, bad := range map[string]struct {
		frames []*pb.ClientFrame
		code   pb.ErrorCode
		want   string
	}{
		"no size":        {[]*pb.ClientFrame{part(0, []byte("x"))}, pb.ErrorCode_ERROR_VALUE_TOO_LARGE, "total_bytes"},
		"2 GiB":          {[]*pb.ClientFrame{part(2<<30, []byte("x"))}, pb.ErrorCode_ERROR_VALUE_TOO_LARGE, "2147483648"},
		"no data":        {[]*pb.ClientFrame{part(10, nil)}, pb.ErrorCode_ERROR_INVALID_ARGUMENT, "part.data"},
		"too much data":  {[]*pb.ClientFrame{part(3, []byte("abcd"))}, pb.ErrorCode_ERROR_INVALID_ARGUMENT, "part.data"},
		"other between":  {[]*pb.ClientFrame{part(3, []byte("a")), heartbeat}, pb.ErrorCode_ERROR_INVALID_ARGUMENT, "another frame"},
		"begun anew":     {[]*pb.ClientFrame{part(3, []byte("a")), part(3, []byte("a"))}, pb.ErrorCode_ERROR_INVALID_ARGUMENT, "another frame"},
		"no frame":       {[]*pb.ClientFrame{part(2, []byte("\xff\xff"))}, pb.ErrorCode_ERROR_INVALID_ARGUMENT, "cannot be read"},
		"part in a part": {[]*pb.ClientFrame{part(uint32(len(nested)), nested)}, pb.ErrorCode_ERROR_INVALID_ARGUMENT, "within a part"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, client, "a"+name)
			s.t = t
			for _, frame := range bad.frames {
				s.send(frame)
			}
			failure := s.receive().GetError()
			if failure.GetCode() != bad.code || !strings.Contains(failure.GetMessage(), bad.want) || !failure.GetFatal() {
				t.Fatalf("answer: %v", failure)
			}
			other.works(t, name)
		})
	}
}

// TestMessageAboveTheLimit refuses what gRPC does not let in, from a client that ignores the limits.
func TestMessageAboveTheLimit(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{}))
	other := open(t, client, "b")
	for _, size := range []int{2 << 20, 40 << 20} {
		s := open(t, client, fmt.Sprint("a", size))
		s.write(put("k", strings.Repeat("x", size)))
		_, err := s.stream.Recv()
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
			t.Errorf("%d bytes: %v", size, err)
		}
		other.works(t, fmt.Sprint(size))
	}
}

// TestKeyAboveTheLimit refuses keys that the store does not take, naming the state.
func TestKeyAboveTheLimit(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{}))
	other := open(t, client, "b")
	s := open(t, client, "a")
	key := strings.Repeat("k", 1<<20)
	s.sendParts(writeFrame(1, put(key, "v")))
	s.sendParts(writeFrame(2, put(key+"k", "v")))
	if failure := s.receive().GetError(); failure.GetCode() != pb.ErrorCode_ERROR_VALUE_TOO_LARGE || !strings.Contains(failure.GetMessage(), `key of 1048577 bytes in state "v"`) {
		t.Fatalf("answer: %v", failure)
	}
	other.works(t, "x")
}

// TestListThatGrowsTooLarge refuses the append that makes a list larger than a value may be: nobody could read it.
func TestListThatGrowsTooLarge(t *testing.T) {
	client := dial(t, startServerOn(t, memory.New(), lineage.Options{MaxValueBytes: 1000}, bridge.Options{}))
	s := open(t, client, "a")
	element := strings.Repeat("e", 333)
	for range 3 { // 1001 bytes with the delimiters
		s.write(&pb.Entry{State: 1, Op: pb.Op_OP_APPEND, Key: []byte("k"), Value: []byte(element)})
	}
	failure := s.receive().GetError()
	for _, want := range []string{`state "l"`, "1001", "1000", "--max-value-bytes"} {
		if failure.GetCode() != pb.ErrorCode_ERROR_VALUE_TOO_LARGE || !strings.Contains(failure.GetMessage(), want) {
			t.Errorf("%v: no %s", failure, want)
		}
	}
	s.attach()
	if got := s.read(1, "k"); got != element+","+element {
		t.Errorf("%d bytes are left", len(got))
	}
}

// TestLimitThatWasLowered answers with an error, and only that request, for a value that is above the limit
// that the server has now.
func TestLimitThatWasLowered(t *testing.T) {
	st := memory.New()
	before := open(t, dial(t, startServer(t, bridge.Options{})), "x") // another store: numbers differ
	before.works(t, "v")
	s := open(t, dial(t, startServerOn(t, st, lineage.Options{}, bridge.Options{})), "a")
	s.write(put("k", strings.Repeat("v", 2000)), put("small", "v"))
	s.read(0, "small")
	s.cancel()
	again := &session{t: t, client: dial(t, startServerOn(t, st, lineage.Options{MaxValueBytes: 1 << 10}, bridge.Options{})), id: s.id, token: s.token}
	again.attach()
	again.send(readFrame(0, "k"))
	if failure := again.receive().GetError(); failure.GetCode() != pb.ErrorCode_ERROR_VALUE_TOO_LARGE || failure.GetFatal() || !strings.Contains(failure.GetMessage(), `state "v"`) {
		t.Errorf("read: %v", failure)
	}
	again.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Scan{Scan: &pb.Scan{RequestId: 1, Range: &pb.GroupRange{Last: testGroups - 1}}}})
	if failure := again.receive().GetError(); failure.GetCode() != pb.ErrorCode_ERROR_VALUE_TOO_LARGE {
		t.Errorf("scan: %v", failure)
	}
	if got := again.read(0, "small"); got != "v" {
		t.Errorf("the session goes on with %q", got)
	}
}

// TestReadOfManyLargeRows asks for 1 GiB with one frame: it comes piece by piece, and memory stays bounded.
func TestReadOfManyLargeRows(t *testing.T) {
	s := open(t, dial(t, startServer(t, bridge.Options{})), "a")
	s.write(put("k", strings.Repeat("x", 1<<20-100)))
	read := &pb.Read{RequestId: 1, Keys: &pb.Batch{}}
	for range 1024 {
		read.Keys.Entries = append(read.Keys.Entries, &pb.Entry{Key: []byte("k")})
	}
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Read{Read: read}})
	rows := 0
	for last := false; !last; {
		result := s.receive().GetReadResult()
		rows, last = rows+len(result.GetRows().GetEntries()), result.GetLast()
		if rows%128 == 0 {
			checkHeap(t)
		}
	}
	if rows != 1024 {
		t.Errorf("%d rows came", rows)
	}
}

// checkHeap demands that what is in use fits into memory many times.
func checkHeap(t *testing.T) {
	t.Helper()
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	if heap.HeapAlloc > 256<<20 {
		t.Fatalf("%d MiB of heap in use", heap.HeapAlloc>>20)
	}
}

// inflight is how much of the budget is taken.
func inflight(t *testing.T, metrics *bridge.Metrics) float64 {
	t.Helper()
	var m dto.Metric
	if err := metrics.Inflight.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

// gatedStore holds transactions up while it is shut; reads go on.
type gatedStore struct {
	store.Store
	mu   sync.Mutex
	open chan struct{}
}

func newGatedStore(st store.Store) *gatedStore {
	g := &gatedStore{Store: st, open: make(chan struct{})}
	close(g.open)
	return g
}

func (g *gatedStore) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gatedStore) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
}

func (g *gatedStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return g.Store.Update(ctx, fn)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestBudgetOfLargeFrames writes ten times what the budget takes while the store does not answer: frames wait
// at their clients, small reads go on, and when the store answers everything is written.
func TestBudgetOfLargeFrames(t *testing.T) {
	const limit, sessions, valueBytes = 64 << 20, 12, 2 << 20
	gate := newGatedStore(memory.New())
	metrics := newMetrics()
	address := startServerOn(t, gate, lineage.Options{MaxValueBytes: valueBytes}, bridge.Options{MaxInflightBytes: limit, Metrics: metrics})
	other := open(t, dial(t, address), "b")
	other.works(t, "small")
	writers := make([]*session, sessions)
	for i := range writers {
		writers[i] = open(t, dial(t, address), fmt.Sprintf("a%d", i))
		writers[i].read(0, "k") // its states are registered
	}
	gate.shut()
	value := strings.Repeat("x", valueBytes)
	var sent sync.WaitGroup
	for _, w := range writers {
		sent.Go(func() {
			for seq := range uint64(2) {
				w.sendParts(writeFrame(seq+1, put("k", value)))
			}
		})
	}
	for inflight(t, metrics) < limit/2 { // the test's time is the limit
		time.Sleep(time.Millisecond)
	}
	for range 50 {
		if got := other.read(0, "k"); got != "small" {
			t.Fatalf("read %q", got)
		}
		if used := inflight(t, metrics); used > limit {
			t.Fatalf("%.0f bytes are in flight, allowed are %d", used, limit)
		}
	}
	gate.release()
	sent.Wait()
	for _, w := range writers {
		if got := w.readLarge(0, "k"); got != value {
			t.Errorf("%d bytes were written", len(got))
		}
	}
	if used := inflight(t, metrics); used != 0 {
		t.Errorf("%.0f bytes of the budget were not given back", used)
	}
}

// TestClientThatStopsHalfWay keeps its room for a while only.
func TestClientThatStopsHalfWay(t *testing.T) {
	metrics := newMetrics()
	address := startServer(t, bridge.Options{PartPatience: 100 * time.Millisecond, MaxInflightBytes: 256 << 20, Metrics: metrics})
	other := open(t, dial(t, address), "b")
	s := open(t, dial(t, address), "a")
	s.send(part(1<<20, []byte("x")))
	if failure := s.receive().GetError(); failure.GetCode() != pb.ErrorCode_ERROR_INVALID_ARGUMENT || !strings.Contains(failure.GetMessage(), "did not come within") {
		t.Fatalf("answer: %v", failure)
	}
	awaitBudgetUnused(t, metrics)
	other.works(t, "x")
}

// TestStreamThatNeverAttaches is ended, and others go on.
func TestStreamThatNeverAttaches(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{AttachTimeout: 50 * time.Millisecond}))
	other := open(t, client, "b")
	for range 20 {
		silent, err := client.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		frame, err := silent.Recv()
		if failure := frame.GetError(); failure.GetCode() != pb.ErrorCode_ERROR_INVALID_ARGUMENT || !strings.Contains(failure.GetMessage(), "attach") {
			t.Fatalf("answer: %v, %v", frame, err)
		}
	}
	other.works(t, "x")
}

// TestTooManySessions refuses one more than is allowed with a code that clients try again after.
func TestTooManySessions(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{MaxSessions: 2}))
	first, second := open(t, client, "a"), open(t, client, "b")
	refused, err := client.Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = refused.Recv()
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "--max-sessions") || refused.Trailer().Get("flinkndb-error")[0] != "ERROR_SERVER_FULL" {
		t.Fatalf("answer: %v, trailer %v", err, refused.Trailer())
	}
	first.works(t, "x")
	second.works(t, "y")
	first.cancel()
	for { // the server hears of the end in its own time
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := client.Session(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&pb.ClientFrame{}); err == nil {
			frame, err := stream.Recv()
			if err == nil && frame.GetError().GetCode() == pb.ErrorCode_ERROR_INVALID_ARGUMENT {
				cancel()
				return // let in, and told that it must attach first
			}
			if status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
		}
		cancel()
	}
}

// TestCallsOfOtherVersions refuses older and newer clients before anything of theirs is looked at.
func TestCallsOfOtherVersions(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{}))
	other := open(t, client, "b")
	for _, version := range []uint32{0, bridge.ProtocolVersion - 1, bridge.ProtocolVersion + 1, 1<<32 - 1} {
		request := openRequest("a")
		request.ProtocolVersion = version
		var trailer metadata.MD
		_, err := client.OpenSession(t.Context(), request, grpc.Trailer(&trailer))
		for _, want := range []string{fmt.Sprint(version), fmt.Sprint(bridge.ProtocolVersion), "same release"} {
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) || trailer.Get("flinkndb-error")[0] != "ERROR_VERSION_MISMATCH" {
				t.Errorf("version %d: %v, trailer %v", version, err, trailer)
			}
		}
		s := &session{t: t, client: client}
		s.connect(&pb.Attach{ProtocolVersion: version, SessionId: other.id, SessionToken: other.token})
		if failure := s.receive().GetError(); failure.GetCode() != pb.ErrorCode_ERROR_VERSION_MISMATCH || !failure.GetFatal() {
			t.Errorf("version %d attaches: %v", version, failure)
		}
	}
	other.works(t, "x")
}
