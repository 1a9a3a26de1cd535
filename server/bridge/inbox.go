package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
)

const (
	// maxMessageBytes is the largest message of a client: a full write batch of the shim's default size
	// goes as one. Larger frames come in parts.
	maxMessageBytes = 1<<20 + 256<<10
	// receivedBytes is how much of a stream may have been received and not be worked on yet: the client need not
	// wait for one frame to be done before it sends the next. Frames count with at least smallestFrame.
	receivedBytes = 2 * maxMessageBytes
	smallestFrame = 32 << 10
	// slowestParts is how fast the parts of a frame must come, in bytes a second.
	slowestParts = 1 << 20
)

// errClientGone ends a stream without a word: nobody listens.
var errClientGone = errors.New("client is gone")

// received is a frame of the client, or why none follows.
type received struct {
	frame *pb.ClientFrame
	// giveBack returns the room that the frame got in the budget before it came; nil if it got none.
	giveBack func()
	// leave gives back its room in the inbox; nil if it has none.
	leave func()
	err   error
}

// done says that the frame has been worked on.
func (r received) done() {
	if r.giveBack != nil {
		r.giveBack()
	}
	if r.leave != nil {
		r.leave()
	}
}

// inbox receives the frames of one stream, some ahead of its reader, and puts those together that come in
// parts. The budget makes room for these before more than their first part is taken.
type inbox struct {
	service *Service
	stream  grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]
	ctx     context.Context
	ahead   func(*pb.ClientFrame) (taken bool, err error) // deals with frames that need not wait
	room    *semaphore.Weighted
	frames  chan received
	stalled chan error
}

func newInbox(ctx context.Context, service *Service, stream grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame],
	ahead func(*pb.ClientFrame) (taken bool, err error)) *inbox {
	return &inbox{
		service: service, stream: stream, ctx: ctx, ahead: ahead, room: semaphore.NewWeighted(receivedBytes),
		frames: make(chan received, receivedBytes/smallestFrame), stalled: make(chan error, 1),
	}
}

// run receives until the stream or the context ends. The stream's end is what wakes it, so it may outlive
// the call by a moment.
func (in *inbox) run() {
	defer in.leaveRest()
	for {
		r := in.next()
		if err := in.enter(&r); err != nil {
			r.done()
			return
		}
		select {
		case in.frames <- r:
		case <-in.ctx.Done():
			r.done()
			return
		}
		if r.err != nil {
			return
		}
	}
}

// leaveRest waits until nobody will work on frames any more, and gives back what the ones that are left hold.
func (in *inbox) leaveRest() {
	<-in.ctx.Done()
	for {
		select {
		case r := <-in.frames:
			r.done()
		default:
			return
		}
	}
}

// enter waits for room for a frame.
func (in *inbox) enter(r *received) error {
	if r.frame == nil || r.leave != nil {
		return nil
	}
	bytes := int64(min(max(proto.Size(r.frame), smallestFrame), receivedBytes))
	if err := in.room.Acquire(in.ctx, bytes); err != nil {
		return err
	}
	r.leave = func() { in.room.Release(bytes) }
	return nil
}

// next returns the next frame that has to take its turn.
func (in *inbox) next() (r received) {
	defer func() {
		if p := recover(); p != nil {
			r = received{err: in.service.panicked(p, "receiving a frame")}
		}
	}()
	for {
		frame, err := in.receive()
		if err != nil {
			return received{err: err}
		}
		if part := frame.GetPart(); part != nil {
			return in.assemble(part) // all frames before it are done then: it need not overtake
		}
		if taken, err := in.ahead(frame); err != nil {
			return received{err: err}
		} else if !taken {
			return received{frame: frame}
		}
	}
}

func (in *inbox) receive() (*pb.ClientFrame, error) {
	frame, err := in.stream.Recv()
	switch {
	case err == nil:
		return frame, nil
	case errors.Is(err, io.EOF) || in.stream.Context().Err() != nil:
		return nil, errClientGone
	case status.Code(err) == codes.ResourceExhausted:
		return nil, tooLarge(fmt.Sprintf("message above limits.max_message_bytes, which is %d: larger frames must come in parts (%s)",
			in.service.limits.GetMaxMessageBytes(), status.Convert(err).Message()))
	case status.Code(err) == codes.Internal:
		return nil, invalid("message that cannot be read: " + status.Convert(err).Message())
	default:
		return nil, fmt.Errorf("receive: %w", err)
	}
}

// assemble takes the parts of a frame. It first waits until all frames before are done: these may have to wait for
// the budget themselves, and would not get what this frame holds.
func (in *inbox) assemble(part *pb.FramePart) (r received) {
	total := int(part.GetTotalBytes())
	if total == 0 || total > int(in.service.limits.GetMaxFrameBytes()) {
		return received{err: tooLarge(fmt.Sprintf("part.total_bytes: a frame of %d bytes, allowed are 1 to %d (--max-value-bytes is %d)",
			total, in.service.limits.GetMaxFrameBytes(), in.service.limits.GetMaxValueBytes()))}
	}
	if err := in.room.Acquire(in.ctx, receivedBytes); err != nil {
		return received{err: errClientGone}
	}
	leave := func() { in.room.Release(receivedBytes) }
	giveBack, err := in.service.budget.take(in.ctx, costOfFrame(total, int(in.service.limits.GetMaxBatchRows())))
	if err != nil {
		leave()
		return received{err: errClientGone}
	}
	defer func() {
		if r.frame == nil { // it failed, or there is a panic
			giveBack()
			leave()
		}
	}()
	frame, err := in.collect(part, total)
	if err != nil {
		return received{err: err}
	}
	return received{frame: frame, giveBack: giveBack, leave: leave}
}

func (in *inbox) collect(part *pb.FramePart, total int) (*pb.ClientFrame, error) {
	patience := in.service.opt.PartPatience + time.Duration(total)*time.Second/slowestParts
	timer := time.AfterFunc(patience, func() {
		in.stalled <- invalid(fmt.Sprintf("part: a frame of %d bytes did not come within %s", total, patience))
	})
	defer timer.Stop()
	raw := make([]byte, 0, total)
	for {
		data := part.GetData()
		if len(data) == 0 || len(data) > total-len(raw) {
			return nil, invalid(fmt.Sprintf("part.data: %d bytes, allowed are 1 to %d", len(data), total-len(raw)))
		}
		raw = append(raw, data...)
		if len(raw) == total {
			break
		}
		frame, err := in.receive()
		if err != nil {
			return nil, err
		}
		if part = frame.GetPart(); part == nil || part.GetTotalBytes() != 0 {
			return nil, invalid(fmt.Sprintf("part: another frame began after %d of %d bytes", len(raw), total))
		}
	}
	frame := &pb.ClientFrame{}
	if err := proto.Unmarshal(raw, frame); err != nil {
		return nil, invalid("parts of a frame that cannot be read: " + err.Error())
	}
	if frame.GetPart() != nil {
		return nil, invalid("part: a part within a part")
	}
	return frame, nil
}
