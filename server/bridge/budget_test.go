package bridge_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// scriptedStream is a client that has sent some frames, and takes the error that ends its stream only once the server
// has asked for more frames than these: by then it has received them all.
type scriptedStream struct {
	grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]
	ctx      context.Context
	frames   []*pb.ClientFrame
	received chan struct{}
	failure  *pb.Error
}

func (s *scriptedStream) Context() context.Context { return s.ctx }

func (s *scriptedStream) Recv() (*pb.ClientFrame, error) {
	if len(s.frames) == 0 {
		close(s.received)
		<-s.ctx.Done()
		return nil, io.EOF
	}
	frame := s.frames[0]
	s.frames = s.frames[1:]
	return frame, nil
}

func (s *scriptedStream) Send(frame *pb.ServerFrame) error {
	if frame.GetError() == nil {
		return nil
	}
	s.failure = frame.GetError()
	select {
	case <-s.received:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// awaitBudgetUnused demands that all of the budget is given back.
func awaitBudgetUnused(t *testing.T, metrics *bridge.Metrics) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for inflight(t, metrics) != 0 {
		if ctx.Err() != nil {
			t.Fatalf("%.0f bytes of the budget were not given back", inflight(t, metrics))
		}
		time.Sleep(time.Millisecond)
	}
}

// TestFrameBehindAFailedOneLeavesTheBudget sends a large frame in parts behind one that ends the stream: nobody works
// on it, and the room that it took goes to other sessions.
func TestFrameBehindAFailedOneLeavesTheBudget(t *testing.T) {
	l, err := lineage.New(t.Context(), memory.New(), lineage.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	opened, err := l.Open(t.Context(), lineage.OpenRequest{Token: "a", JobID: "a", GroupCount: 1})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(writeFrame(2, put("k", strings.Repeat("x", 2<<20))))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := &scriptedStream{ctx: ctx, received: make(chan struct{}), frames: []*pb.ClientFrame{
		{Frame: &pb.ClientFrame_Attach{Attach: &pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: opened.SessionID, SessionToken: "a"}}},
		register(0, "v", pb.StateKind_STATE_KIND_VALUE),
		writeFrame(7, put("k", "v")), // the first one would have the number 1
		part(uint32(len(raw)), raw[:1<<20]),
		part(0, raw[1<<20:]),
	}}
	metrics := newMetrics()
	if err := bridge.New(l, bridge.Options{Log: zerolog.Nop(), Metrics: metrics}).Session(client); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(client.failure.GetMessage(), "seq is 7, expected 1") {
		t.Fatalf("the stream ended with %v", client.failure)
	}
	<-client.received
	cancel() // as gRPC does at the end of a call
	awaitBudgetUnused(t, metrics)
}

// panickingStore has transactions panic while it is asked to.
type panickingStore struct {
	store.Store
	panics atomic.Bool
}

func (s *panickingStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	if s.panics.Load() {
		panic(errors.New("out of order"))
	}
	return s.Store.Update(ctx, fn)
}

// TestPanicLeavesTheBudget has the work on a large frame panic: its room goes to other sessions.
func TestPanicLeavesTheBudget(t *testing.T) {
	st := &panickingStore{Store: memory.New()}
	metrics := newMetrics()
	address := startServerOn(t, st, lineage.Options{}, bridge.Options{Metrics: metrics})
	other := open(t, dial(t, address), "b")
	other.works(t, "before")
	s := open(t, dial(t, address), "a")
	s.read(0, "k") // its states are registered
	st.panics.Store(true)
	s.sendParts(writeFrame(1, put("k", strings.Repeat("x", 2<<20))))
	if failure := s.receive().GetError(); !strings.Contains(failure.GetMessage(), "out of order") {
		t.Fatalf("answer: %v", failure)
	}
	st.panics.Store(false)
	awaitBudgetUnused(t, metrics)
	other.works(t, "after")
}
