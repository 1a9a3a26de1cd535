package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// TestFrames goes once through what a session can ask for.
func TestFrames(t *testing.T) {
	s := open(t, dial(t, startServer(t, bridge.Options{})), "a")
	s.write(put("k", "v"), &pb.Entry{State: 1, Op: pb.Op_OP_APPEND, Key: []byte("k"), Value: []byte("1")})
	s.write(&pb.Entry{State: 1, Op: pb.Op_OP_APPEND, Key: []byte("k"), Value: []byte("2")})
	if got := s.read(0, "k") + " " + s.read(1, "k") + " " + s.read(0, "absent"); got != "v 1,2 " {
		t.Errorf("read %q", got)
	}
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Count{Count: &pb.Count{RequestId: 2, State: 0, Range: &pb.GroupRange{Last: testGroups - 1}}}})
	if count := s.receive().GetCountResult(); count.GetRows() != 1 || count.GetRequestId() != 2 {
		t.Errorf("count: %v", count)
	}
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_TakeSnapshot{TakeSnapshot: &pb.TakeSnapshot{
		RequestId: 3, SnapshotId: "snap", Epoch: 1, CheckpointId: 7, Kind: pb.SnapshotKind_SNAPSHOT_KIND_CHECKPOINT, Schema: []byte("schema"),
	}}})
	if result := s.receive().GetSnapshotResult(); result.GetDeltaRows() != 3 {
		t.Errorf("snapshot: %v", result)
	}
	info, err := s.client.GetSnapshot(t.Context(), &pb.GetSnapshotRequest{SnapshotId: "snap"})
	if err != nil || info.GetCheckpointId() != 7 || string(info.GetSchema()) != "schema" {
		t.Errorf("snapshot info: %v, %v", info, err)
	}
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Close{Close: &pb.CloseSession{}}})
	if s.receive().GetClosed() == nil {
		t.Error("no answer to close")
	}
	if _, err := s.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after close: %v", err)
	}
}

// TestReconnect sends frames again on a new stream: each is applied once.
func TestReconnect(t *testing.T) {
	s := open(t, dial(t, startServer(t, bridge.Options{})), "a")
	frames := []*pb.ClientFrame{}
	for seq := range uint64(20) {
		frames = append(frames, writeFrame(seq+1, &pb.Entry{State: 1, Op: pb.Op_OP_APPEND, Key: []byte("k"), Value: []byte(fmt.Sprint(seq))}))
	}
	for _, frame := range frames[:10] {
		s.send(frame)
	}
	before := s.stream
	attached := s.attach() // while the older stream may still be working
	if attached.GetAppliedSeq() < attached.GetDurableSeq() {
		t.Errorf("attached: %v", attached)
	}
	for _, frame := range frames { // a client that knows nothing sends all again
		s.send(frame)
	}
	want := "0"
	for i := 1; i < 20; i++ {
		want += fmt.Sprintf(",%d", i)
	}
	if got := s.read(1, "k"); got != want {
		t.Errorf("list is %s", got)
	}
	for { // the older stream ends
		if _, err := before.Recv(); err != nil {
			break
		}
	}
}

// TestClientThatDoesNotAwaitTheEnd closes its session and is gone before the store has ended it.
func TestClientThatDoesNotAwaitTheEnd(t *testing.T) {
	st := newHeldStore()
	streams := make(chan context.Context, 1)
	note := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		streams <- stream.Context()
		return handle(srv, stream)
	}
	conn := connectTo(t, startServerOn(t, st, lineage.Options{}, bridge.Options{}, grpc.StreamInterceptor(note)))
	s := open(t, pb.NewStateServiceClient(conn), "a")
	s.write(put("a", "1"))
	s.applied(1)
	release := st.hold()
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Close{Close: &pb.CloseSession{}}})
	<-st.waiting
	s.cancel()
	<-(<-streams).Done()
	release()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		listed, err := pb.NewAdminServiceClient(conn).ListSessions(t.Context(), &pb.ListSessionsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(listed.GetSessions()) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the session has not ended: %v", listed)
		}
	}
}

// TestBadFrames sends what no client should: each is refused with the right code, and another session
// goes on.
func TestBadFrames(t *testing.T) {
	client := dial(t, startServerOn(t, memory.New(), lineage.Options{MaxValueBytes: 1 << 10}, bridge.Options{}))
	other := open(t, client, "b")
	entries := func(e ...*pb.Entry) *pb.ClientFrame { return writeFrame(1, e...) }
	scan := func(s *pb.Scan) *pb.ClientFrame { return &pb.ClientFrame{Frame: &pb.ClientFrame_Scan{Scan: s}} }
	for name, bad := range map[string]struct {
		frame *pb.ClientFrame
		code  pb.ErrorCode
	}{
		"empty frame":      {&pb.ClientFrame{}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"second attach":    {&pb.ClientFrame{Frame: &pb.ClientFrame_Attach{Attach: &pb.Attach{}}}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"unknown state":    {entries(&pb.Entry{State: 9, Op: pb.Op_OP_PUT}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"foreign group":    {entries(&pb.Entry{Group: testGroups, Op: pb.Op_OP_PUT}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"huge group":       {entries(&pb.Entry{Group: 1 << 20, Op: pb.Op_OP_PUT}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"no op":            {entries(&pb.Entry{}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"unknown op":       {entries(&pb.Entry{Op: 77}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"append to value":  {entries(&pb.Entry{Op: pb.Op_OP_APPEND}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"large value":      {entries(put("k", strings.Repeat("x", 1<<10+1))), pb.ErrorCode_ERROR_VALUE_TOO_LARGE},
		"seq gap":          {writeFrame(3, put("k", "v")), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"epoch zero":       {&pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: &pb.Write{Seq: 1}}}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"broken arrow":     {&pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: &pb.Write{Seq: 1, Epoch: 1, Batch: &pb.Batch{Arrow: []byte("no arrow")}}}}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"both batch kinds": {&pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: &pb.Write{Seq: 1, Epoch: 1, Batch: &pb.Batch{Arrow: []byte("x"), Entries: []*pb.Entry{put("k", "v")}}}}}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"register gap":     {&pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: &pb.RegisterState{Index: 5, Name: "x", Kind: pb.StateKind_STATE_KIND_MAP}}}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"no state name":    {register(2, "", pb.StateKind_STATE_KIND_MAP), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"long state name":  {register(2, strings.Repeat("n", 8<<10+1), pb.StateKind_STATE_KIND_MAP), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"long snapshot id": {&pb.ClientFrame{Frame: &pb.ClientFrame_TakeSnapshot{TakeSnapshot: &pb.TakeSnapshot{RequestId: 1, SnapshotId: strings.Repeat("i", 300), Epoch: 1, Kind: pb.SnapshotKind_SNAPSHOT_KIND_CHECKPOINT}}}, pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"foreign scan":     {scan(&pb.Scan{RequestId: 1, Range: &pb.GroupRange{Last: 40}}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
		"reversed scan":    {scan(&pb.Scan{RequestId: 1, Range: &pb.GroupRange{First: 2, Last: 1}}), pb.ErrorCode_ERROR_INVALID_ARGUMENT},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, client, "a"+name)
			s.t = t
			s.send(bad.frame)
			failure := s.receive().GetError()
			if failure.GetCode() != bad.code || failure.GetMessage() == "" {
				t.Fatalf("answer: %v", failure)
			}
			other.t = t
			other.write(put("k", name))
			if got := other.read(0, "k"); got != name {
				t.Fatalf("the other session reads %q", got)
			}
		})
	}
}

// TestBadAttach refuses streams that do not begin as they must.
func TestBadAttach(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{}))
	good := open(t, client, "a")
	for name, bad := range map[string]struct {
		attach *pb.Attach
		code   pb.ErrorCode
	}{
		"version":         {&pb.Attach{ProtocolVersion: 99, SessionId: good.id, SessionToken: "a"}, pb.ErrorCode_ERROR_VERSION_MISMATCH},
		"wrong token":     {&pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: good.id, SessionToken: "x"}, pb.ErrorCode_ERROR_SESSION_NOT_FOUND},
		"unknown session": {&pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: 1 << 40, SessionToken: "a"}, pb.ErrorCode_ERROR_SESSION_NOT_FOUND},
	} {
		t.Run(name, func(t *testing.T) {
			s := &session{t: t, client: client}
			s.connect(bad.attach)
			if failure := s.receive().GetError(); failure.GetCode() != bad.code {
				t.Fatalf("answer: %v", failure)
			}
		})
	}
	good.write(put("k", "v"))
	if got := good.read(0, "k"); got != "v" {
		t.Errorf("the good session reads %q", got)
	}
}

// TestBadOpen refuses sessions that make no sense, with the field in the message.
func TestBadOpen(t *testing.T) {
	client := dial(t, startServer(t, bridge.Options{}))
	for field, change := range map[string]func(*pb.OpenSessionRequest){
		"protocol_version": func(r *pb.OpenSessionRequest) { r.ProtocolVersion++ },
		"range":            func(r *pb.OpenSessionRequest) { r.Range = &pb.GroupRange{First: 3, Last: 1} },
		"bases[0].range": func(r *pb.OpenSessionRequest) {
			r.Bases = []*pb.Base{{SnapshotId: "x", Range: &pb.GroupRange{First: 1 << 20, Last: 1 << 20}}}
		},
	} {
		request := openRequest("a")
		change(request)
		_, err := client.OpenSession(t.Context(), request)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	request := openRequest("a")
	request.Bases = []*pb.Base{{SnapshotId: "unknown", Range: request.Range}}
	if _, err := client.OpenSession(t.Context(), request); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "restore the checkpoint before it") {
		t.Errorf("unknown base: %v", err)
	}
}

// TestClientThatDoesNotRead asks for 4 GiB and takes nothing: its stream waits, memory stays bounded, and
// other sessions go on.
func TestClientThatDoesNotRead(t *testing.T) {
	address := startServer(t, bridge.Options{})
	greedy := open(t, dial(t, address), "a")
	greedy.write(put("k", strings.Repeat("x", 1<<20)))
	asked := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 4096 && err == nil; i++ {
			err = greedy.stream.Send(readFrame(0, "k"))
		}
		asked <- err
	}()
	other := open(t, dial(t, address), "b")
	for i := range 500 {
		other.write(put("k", fmt.Sprint(i)))
		if got := other.read(0, "k"); got != fmt.Sprint(i) {
			t.Fatalf("read %q", got)
		}
	}
	checkHeap(t)
	greedy.cancel()
	<-asked
}

// slowAnswers is a store that can have a transaction's answer wait after its commit.
type slowAnswers struct {
	store.Store
	slow chan slowAnswer // for the next transaction
}

type slowAnswer struct {
	committed chan struct{} // is closed by the store
	goes      chan struct{} // closed to let the answer go
}

func (s *slowAnswers) Update(ctx context.Context, fn func(tx store.Tx) error) (store.Commit, error) {
	commit, err := s.Store.Update(ctx, fn)
	select {
	case answer := <-s.slow:
		close(answer.committed)
		<-answer.goes
	default:
	}
	return commit, err
}

// TestStreamThatAttachesSlowly attaches a second stream while the answer to the first one's attaching is on its way:
// the second is the one that goes on.
func TestStreamThatAttachesSlowly(t *testing.T) {
	st := &slowAnswers{memory.New(), make(chan slowAnswer, 1)}
	client := dial(t, startServerOn(t, st, lineage.Options{}, bridge.Options{}))
	s := open(t, client, "a")
	s.read(0, "k") // its states are registered, so that the next transaction is the one below
	old := &session{t: t, client: client, id: s.id, token: s.token}
	answer := slowAnswer{make(chan struct{}), make(chan struct{})}
	st.slow <- answer
	old.connect(&pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: s.id, SessionToken: s.token})
	<-answer.committed
	s.attach()
	s.write(put("k", "v"))
	if got := s.read(0, "k"); got != "v" {
		t.Fatalf("read %q", got)
	}
	close(answer.goes)
	for { // the slow one ends, not the newer one
		frame, err := old.stream.Recv()
		if err != nil {
			break
		}
		if code := frame.GetError().GetCode(); frame.GetError() != nil && code != pb.ErrorCode_ERROR_SESSION_NOT_FOUND {
			t.Errorf("the slow stream ends with %v", code)
		}
	}
	s.write(put("k", "w"))
	if got := s.read(0, "k"); got != "w" {
		t.Errorf("read %q", got)
	}
}

// unprovenCommits is a store that cannot say whether what it commits is durable.
type unprovenCommits struct{ store.Store }

type unprovenCommit struct{}

func (unprovenCommit) Wait(context.Context) error { return store.ErrUnavailable }

func (s unprovenCommits) Update(ctx context.Context, fn func(tx store.Tx) error) (store.Commit, error) {
	_, err := s.Store.Update(ctx, fn)
	return unprovenCommit{}, err
}

// TestFailedAttachHoldsNothing has attaching fail once the server holds the session: its lease must count from then on.
func TestFailedAttachHoldsNothing(t *testing.T) {
	st := memory.New()
	address := startServerOn(t, unprovenCommits{st}, lineage.Options{}, bridge.Options{})
	opened, err := dial(t, startServerOn(t, st, lineage.Options{}, bridge.Options{})).OpenSession(t.Context(), openRequest("a"))
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, client: dial(t, address), id: opened.GetSessionId(), token: "a"}
	for range 3 { // the first may attach before it is known that nothing can be proven
		s.connect(&pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: s.id, SessionToken: s.token})
		for err = nil; err == nil; {
			_, err = s.stream.Recv()
		}
	}
	list, err := dialAdmin(t, address).ListSessions(t.Context(), &pb.ListSessionsRequest{})
	if err != nil || len(list.GetSessions()) != 1 {
		t.Fatalf("sessions %v, error %v", list, err)
	}
	if list.GetSessions()[0].GetAttached() {
		t.Error("a session without a stream counts as attached: it never expires")
	}
}
