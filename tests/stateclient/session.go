// Package stateclient is a small client of the wire contract, for tests that need many sessions or sessions
// that do what the shim never would.
package stateclient

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
)

// PartBytes is the size of a part of a large frame.
const PartBytes = 1 << 20

// Session is an attached session over one key group with one value state. For one goroutine, except that
// one may send while another one receives.
type Session struct {
	Stream grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]

	maxMessage int
	seq        uint64
}

// Open opens a session of a job, which has 32 hex digits, and attaches to it.
func Open(ctx context.Context, conn grpc.ClientConnInterface, job string) (*Session, error) {
	client := pb.NewStateServiceClient(conn)
	opened, err := client.OpenSession(ctx, &pb.OpenSessionRequest{
		ProtocolVersion: bridge.ProtocolVersion, SessionToken: "token of " + job, JobId: job, KeyGroupCount: 1, Range: &pb.GroupRange{},
	})
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	stream, err := client.Session(ctx)
	if err != nil {
		return nil, fmt.Errorf("session stream: %w", err)
	}
	s := &Session{Stream: stream, maxMessage: int(opened.GetLimits().GetMaxMessageBytes())}
	if err := s.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Attach{Attach: &pb.Attach{
		ProtocolVersion: bridge.ProtocolVersion, SessionId: opened.GetSessionId(), SessionToken: "token of " + job,
	}}}); err != nil {
		return nil, err
	}
	if _, err := s.Receive(); err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	return s, s.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: &pb.RegisterState{Name: "v", Kind: pb.StateKind_STATE_KIND_VALUE}}})
}

// Send sends a frame, in parts where it is large.
func (s *Session) Send(frame *pb.ClientFrame) error {
	if proto.Size(frame) <= s.maxMessage {
		return s.sendOne(frame)
	}
	raw, err := proto.Marshal(frame)
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	total := uint32(len(raw))
	for len(raw) > 0 {
		n := min(len(raw), PartBytes)
		if err := s.sendOne(&pb.ClientFrame{Frame: &pb.ClientFrame_Part{Part: &pb.FramePart{TotalBytes: total, Data: raw[:n]}}}); err != nil {
			return err
		}
		raw, total = raw[n:], 0
	}
	return nil
}

// sendOne sends a message; why the server has ended the stream is learnt by receiving.
func (s *Session) sendOne(frame *pb.ClientFrame) error {
	if err := s.Stream.Send(frame); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return nil
}

// Receive returns the next frame; an error frame is an error.
func (s *Session) Receive() (*pb.ServerFrame, error) {
	frame, err := s.Stream.Recv()
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	if failure := frame.GetError(); failure != nil {
		return nil, fmt.Errorf("%s: %s", failure.GetCode(), failure.GetMessage())
	}
	return frame, nil
}

// Put is an entry that sets a row.
func Put(key string, value []byte) *pb.Entry {
	return &pb.Entry{Op: pb.Op_OP_PUT, Key: []byte(key), Value: value}
}

// Write sends rows and returns the seq of the frame.
func (s *Session) Write(rows ...*pb.Entry) (uint64, error) {
	s.seq++
	return s.seq, s.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: &pb.Write{Seq: s.seq, Epoch: 1, Batch: &pb.Batch{Entries: rows}}}})
}

// Ask sends a request for a row.
func (s *Session) Ask(key string) error {
	return s.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Read{Read: &pb.Read{RequestId: 1, Keys: &pb.Batch{Entries: []*pb.Entry{{Key: []byte(key)}}}}}})
}

// Read returns a row's value, nil if there is none. Acknowledgements before the answer are skipped.
func (s *Session) Read(key string) ([]byte, error) {
	if err := s.Ask(key); err != nil {
		return nil, err
	}
	for {
		frame, err := s.Receive()
		if err != nil {
			return nil, err
		}
		if frame.GetWriteAck() != nil {
			continue
		}
		rows := frame.GetReadResult().GetRows().GetEntries()
		if len(rows) != 1 {
			return nil, errors.New("an answer that is not one row")
		}
		if rows[0].GetOp() == pb.Op_OP_DELETE {
			return nil, nil
		}
		return rows[0].GetValue(), nil
	}
}
