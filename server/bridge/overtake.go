package bridge

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/lineage"
)

// overtaker answers reads that need not wait for the frames before them (Read.overtakes), while the goroutine of
// the call works on these. A task would otherwise wait, for each key that is not cached, until the changes of a
// whole epoch are written. The goroutine that receives answers them itself, before it receives more: so a read
// never sees a write that the client sent after it.
type overtaker struct {
	x *sessionStream

	// session is nil until the stream has attached, and once it is over.
	mu      sync.RWMutex
	session *lineage.Session
	codec   *batchCodec // the other one is in use
}

// registered is the session's number of each state index of a stream. One goroutine adds, any may look.
type registered struct{ numbers atomic.Pointer[[]uint16] }

func (r *registered) all() []uint16 {
	if numbers := r.numbers.Load(); numbers != nil {
		return *numbers
	}
	return nil
}

func (r *registered) add(number uint16) {
	numbers := append(r.all(), number) // those who look at the old slice look no further than its length
	r.numbers.Store(&numbers)
}

// begin lets reads overtake from now on.
func (o *overtaker) begin(session *lineage.Session) error {
	codec, err := newBatchCodec(o.x.service.limits)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.codec, o.session = codec, session
	return nil
}

// end waits for a read that is being answered; afterwards none is.
func (o *overtaker) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.session = nil
}

// take answers a frame if it is a read that may overtake and can be answered now; otherwise the frame has to
// take its turn. An error ends the stream.
func (o *overtaker) take(frame *pb.ClientFrame) (taken bool, err error) {
	read := frame.GetRead()
	if !read.GetOvertakes() {
		return false, nil
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	if o.session == nil {
		return false, nil
	}
	keys, err := o.x.entries(o.codec, read.GetKeys())
	if err != nil {
		return false, nil // in its turn it has an answer: its state may be among the frames that wait
	}
	start := time.Now()
	err = o.x.answer(read.GetRequestId(), o.x.read(o.codec, o.session, read.GetRequestId(), keys))
	o.x.service.opt.Metrics.Frames.WithLabelValues("overtaking read").Observe(time.Since(start).Seconds())
	return true, err
}
