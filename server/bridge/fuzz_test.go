package bridge_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
)

// rawCodec sends bytes as they are and reads server frames.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }

func (rawCodec) Unmarshal(raw []byte, into any) error {
	return proto.Unmarshal(raw, into.(*pb.ServerFrame))
}

// script is messages one behind the other, each after its length, as the fuzzer changes them.
type script []byte

func (s script) with(frames ...*pb.ClientFrame) script {
	for _, frame := range frames {
		raw, err := proto.Marshal(frame)
		if err != nil {
			panic(err)
		}
		s = append(binary.AppendUvarint(s, uint64(len(raw))), raw...)
	}
	return s
}

// next cuts the first message off; a length that makes no sense takes all that is left.
func (s script) next() (message []byte, rest script) {
	n, used := binary.Uvarint(s)
	if used <= 0 {
		return s, nil
	}
	s = s[used:]
	n = min(n, uint64(len(s)))
	return s[:n], s[n:]
}

func register(index uint32, name string, kind pb.StateKind) *pb.ClientFrame {
	return &pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: &pb.RegisterState{Index: index, Name: name, Kind: kind}}}
}

func sampleScript() script {
	all := &pb.GroupRange{Last: testGroups - 1}
	nested, err := proto.Marshal(writeFrame(3, put("large", "value")))
	if err != nil {
		panic(err)
	}
	return script{}.with(
		register(0, "v", pb.StateKind_STATE_KIND_VALUE), register(1, "l", pb.StateKind_STATE_KIND_LIST), register(2, "t", pb.StateKind_STATE_KIND_TIMER),
		writeFrame(1, put("k", "v"), &pb.Entry{State: 1, Op: pb.Op_OP_APPEND, Key: []byte("k"), Value: []byte("1")}, &pb.Entry{State: 2, Group: 3, Op: pb.Op_OP_PUT, Key: []byte("t")}),
		readFrame(0, "k"),
		writeFrame(2, &pb.Entry{Op: pb.Op_OP_DELETE_PREFIX, Key: []byte("k")}, &pb.Entry{State: 1, Op: pb.Op_OP_DELETE, Key: []byte("k")}),
		&pb.ClientFrame{Frame: &pb.ClientFrame_Scan{Scan: &pb.Scan{RequestId: 2, State: 2, Range: all, Order: pb.ScanOrder_SCAN_ORDER_KEY_GROUP, Resume: true, AfterGroup: 1, AfterKey: []byte("s"), LimitRows: 1}}},
		&pb.ClientFrame{Frame: &pb.ClientFrame_Scan{Scan: &pb.Scan{RequestId: 3, Range: all, Prefix: []byte("k"), KeysOnly: true, LimitBytes: 1}}},
		&pb.ClientFrame{Frame: &pb.ClientFrame_Count{Count: &pb.Count{RequestId: 4, State: 1, Range: all}}},
		part(uint32(len(nested)), nested[:5]), part(0, nested[5:]),
		&pb.ClientFrame{Frame: &pb.ClientFrame_TakeSnapshot{TakeSnapshot: &pb.TakeSnapshot{RequestId: 5, SnapshotId: "snap", Epoch: 1, CheckpointId: 7, Kind: pb.SnapshotKind_SNAPSHOT_KIND_CHECKPOINT, Schema: []byte("schema")}}},
		&pb.ClientFrame{Frame: &pb.ClientFrame_Notify{Notify: &pb.Notify{CheckpointId: 7}}},
		&pb.ClientFrame{Frame: &pb.ClientFrame_Heartbeat{Heartbeat: &pb.Heartbeat{}}},
		&pb.ClientFrame{Frame: &pb.ClientFrame_Close{Close: &pb.CloseSession{}}},
	)
}

// FuzzSession sends anything on a session's stream, attached or not. The stream ends, with no internal error
// (a panic is one), the session can be attached again unless it was closed, and another session goes on.
func FuzzSession(f *testing.F) {
	f.Add(true, []byte(sampleScript()))
	f.Add(false, []byte(sampleScript()))
	f.Add(true, []byte(script{}.with(writeFrame(1<<63), readFrame(1<<31, ""), part(1<<31, []byte("x")))))
	f.Add(true, []byte(script{}.with(&pb.ClientFrame{Frame: &pb.ClientFrame_Attach{Attach: &pb.Attach{}}})))
	f.Add(true, []byte{3, 0xff, 0xff, 0xff, 0, 1})
	f.Fuzz(func(t *testing.T, attach bool, raw []byte) {
		address := startServer(t, bridge.Options{AttachTimeout: time.Second, PartPatience: time.Second})
		client := dial(t, address)
		other := open(t, client, "b")
		opened, err := client.OpenSession(t.Context(), openRequest("a"))
		if err != nil {
			t.Fatal(err)
		}
		play(t, address, &pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: opened.GetSessionId(), SessionToken: "a"}, attach, raw)
		other.works(t, "still here")
		again := &session{t: t, client: client}
		again.connect(&pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: opened.GetSessionId(), SessionToken: "a"})
		answer := again.receive()
		if answer.GetAttached() == nil && answer.GetError().GetCode() != pb.ErrorCode_ERROR_SESSION_NOT_FOUND {
			t.Fatalf("attached again: %v", answer)
		}
	})
}

// play sends a script and waits for the end of the stream.
func play(t *testing.T, address string, attach *pb.Attach, attached bool, raw script) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // a hang is a failure
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, pb.StateService_Session_FullMethodName, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		t.Fatal(err)
	}
	if attached {
		raw = append(script{}.with(&pb.ClientFrame{Frame: &pb.ClientFrame_Attach{Attach: attach}}), raw...)
	}
	for err == nil && len(raw) > 0 {
		var message []byte
		message, raw = raw.next()
		err = stream.SendMsg(message)
	}
	if err == nil {
		err = stream.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) { // it has ended: why is received below
		t.Fatal(err)
	}
	for {
		frame := &pb.ServerFrame{}
		if err := stream.RecvMsg(frame); err != nil {
			if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable || code == codes.Unknown && !errors.Is(err, io.EOF) {
				t.Fatalf("the stream did not end well: %v", err)
			}
			return
		}
		if frame.GetError().GetCode() == pb.ErrorCode_ERROR_INTERNAL {
			t.Fatalf("internal error: %v", frame)
		}
	}
}
