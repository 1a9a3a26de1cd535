package bridge_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

const testGroups = 4

// startServer runs a service over an empty memory store on a Unix socket, and returns its address.
func startServer(t testing.TB, opt bridge.Options, serverOptions ...grpc.ServerOption) string {
	t.Helper()
	return startServerOn(t, memory.New(), lineage.Options{}, opt, serverOptions...)
}

// startServerOn is the same over a store of one's own.
func startServerOn(t testing.TB, st store.Store, rows lineage.Options, opt bridge.Options, serverOptions ...grpc.ServerOption) string {
	t.Helper()
	rows.Log = zerolog.Nop()
	l, err := lineage.New(t.Context(), st, rows)
	if err != nil {
		t.Fatal(err)
	}
	opt.Log = zerolog.Nop()
	if opt.Metrics == nil {
		opt.Metrics = newMetrics()
	}
	service := bridge.New(l, opt)
	server := grpc.NewServer(append(serverOptions, grpc.MaxRecvMsgSize(service.MaxReceiveBytes()), grpc.MaxSendMsgSize(service.MaxSendBytes()))...)
	service.Register(server)
	dir, err := os.MkdirTemp("", "bridge") // t.TempDir may have a # in its name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	return "unix://" + socket
}

func newMetrics() *bridge.Metrics { return bridge.NewMetrics(prometheus.NewRegistry()) }

func dial(t testing.TB, address string) pb.StateServiceClient {
	t.Helper()
	return pb.NewStateServiceClient(connectTo(t, address))
}

func dialAdmin(t testing.TB, address string) pb.AdminServiceClient {
	t.Helper()
	return pb.NewAdminServiceClient(connectTo(t, address))
}

func connectTo(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(256<<20), grpc.MaxCallSendMsgSize(256<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func openRequest(token string) *pb.OpenSessionRequest {
	return &pb.OpenSessionRequest{
		ProtocolVersion: bridge.ProtocolVersion, SessionToken: token, JobId: strings.Repeat("0", 31) + token[:1],
		KeyGroupCount: testGroups, Range: &pb.GroupRange{Last: testGroups - 1},
	}
}

// session is a client with an attached stream.
type session struct {
	t      testing.TB
	client pb.StateServiceClient
	id     uint64
	token  string
	stream grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]
	cancel context.CancelFunc
	seq    uint64
}

// open opens a session, attaches to it and registers a value and a list state (0 and 1).
func open(t testing.TB, client pb.StateServiceClient, token string) *session {
	t.Helper()
	opened, err := client.OpenSession(t.Context(), openRequest(token))
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, client: client, id: opened.GetSessionId(), token: token}
	s.attach()
	return s
}

func (s *session) attach() *pb.Attached {
	s.t.Helper()
	s.connect(&pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: s.id, SessionToken: s.token})
	attached := s.receive().GetAttached()
	if attached == nil {
		s.t.Fatal("no attached")
	}
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: &pb.RegisterState{Index: 0, Name: "v", Kind: pb.StateKind_STATE_KIND_VALUE}}})
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: &pb.RegisterState{Index: 1, Name: "l", Kind: pb.StateKind_STATE_KIND_LIST}}})
	return attached
}

func (s *session) connect(attach *pb.Attach) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute) // a hang is a failure
	s.t.Cleanup(cancel)
	stream, err := s.client.Session(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	s.stream, s.cancel = stream, cancel
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_Attach{Attach: attach}})
}

func (s *session) send(frame *pb.ClientFrame) {
	s.t.Helper()
	if err := s.stream.Send(frame); err != nil {
		s.t.Fatal(err)
	}
}

// receive returns the next frame that is no acknowledgement.
func (s *session) receive() *pb.ServerFrame {
	s.t.Helper()
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		if frame.GetWriteAck() == nil {
			return frame
		}
	}
}

func (s *session) write(entries ...*pb.Entry) {
	s.t.Helper()
	s.seq++
	s.send(writeFrame(s.seq, entries...))
}

func writeFrame(seq uint64, entries ...*pb.Entry) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: &pb.Write{Seq: seq, Epoch: 1, Batch: &pb.Batch{Entries: entries}}}}
}

func put(key, value string) *pb.Entry {
	return &pb.Entry{Op: pb.Op_OP_PUT, Key: []byte(key), Value: []byte(value)}
}

func readFrame(state uint32, key string) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Read{Read: &pb.Read{RequestId: 1, Keys: &pb.Batch{Entries: []*pb.Entry{{State: state, Key: []byte(key)}}}}}}
}

// read returns a row's value; absent rows are "".
func (s *session) read(state uint32, key string) string {
	s.t.Helper()
	s.send(readFrame(state, key))
	result := s.receive().GetReadResult()
	if result == nil || len(result.GetRows().GetEntries()) != 1 {
		s.t.Fatalf("answer to a read: %v", result)
	}
	return string(result.GetRows().GetEntries()[0].GetValue())
}
