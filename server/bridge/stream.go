package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
)

// sendAhead is how many answers may wait for the client before its next frame is worked on, maxUnsent how
// large they may be together in units of softFrameBytes (a larger answer waits alone): they bound the memory
// of a stream whose client does not read.
const (
	sendAhead = 4
	maxUnsent = 2
)

var errNewerStream = errors.New("a newer stream has attached to the session")

// streamTable knows the newest stream of each session, so that an older one can be ended, and how many there
// are.
type streamTable struct {
	mu     sync.Mutex
	open   int
	active map[uint64]*sessionStream
}

// add counts a stream that wants to attach; false when there are too many.
func (t *streamTable) add(limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open >= limit {
		return false
	}
	t.open++
	return true
}

func (t *streamTable) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
}

func newStreamTable() *streamTable { return &streamTable{active: map[uint64]*sessionStream{}} }

// replace makes a stream the session's newest and ends the one before. It returns false if that one is newer: a stream
// whose attaching took long must not end the one that its client goes on with.
func (t *streamTable) replace(id uint64, s *sessionStream) bool {
	t.mu.Lock()
	old := t.active[id]
	if old != nil && s.session.OlderThan(old.session) {
		t.mu.Unlock()
		return false
	}
	t.active[id] = s
	t.mu.Unlock()
	if old != nil {
		old.cancel(errNewerStream)
	}
	return true
}

func (t *streamTable) remove(id uint64, s *sessionStream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[id] == s {
		delete(t.active, id)
	}
}

// sessionStream is one attached stream. Frames are worked through by the goroutine of the call; others
// receive them (and answer reads that overtake), send the answers, and follow durability.
type sessionStream struct {
	service *Service
	stream  grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]
	ctx     context.Context
	cancel  context.CancelCauseFunc
	inbox   *inbox
	out     chan answer
	unsent  *semaphore.Weighted
	workers sync.WaitGroup

	session *lineage.Session
	codec   *batchCodec
	states  registered
	ahead   overtaker
}

// answer is a frame for the client and the room that it takes among the unsent.
type answer struct {
	frame *pb.ServerFrame
	bytes int64
}

// Session implements StateService.
func (s *Service) Session(stream grpc.BidiStreamingServer[pb.ClientFrame, pb.ServerFrame]) error {
	if !s.streams.add(s.opt.MaxSessions) {
		return callError(stream.Context(), &wireError{pb.ErrorCode_ERROR_SERVER_FULL, codes.ResourceExhausted, fmt.Sprintf(
			"%d sessions are attached, which is as many as this server allows (--max-sessions)", s.opt.MaxSessions)})
	}
	defer s.streams.done()
	codec, err := newBatchCodec(s.limits)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(errClientGone)
	x := &sessionStream{
		service: s, stream: stream, ctx: ctx, cancel: cancel, codec: codec,
		out: make(chan answer, sendAhead), unsent: semaphore.NewWeighted(maxUnsent * softFrameBytes),
	}
	x.ahead.x = x
	x.inbox = newInbox(ctx, s, stream, x.ahead.take)
	s.opt.Metrics.Streams.Inc()
	defer s.opt.Metrics.Streams.Dec()
	go x.inbox.run()
	sent := make(chan error, 1)
	go func() { sent <- x.sendAll() }()
	err = x.run()
	// A client that takes no answers must not hold what the stream has.
	last := time.AfterFunc(lastWords, func() { cancel(errClientGone) })
	defer last.Stop()
	if err != nil && !errors.Is(err, errClientGone) {
		x.report(err)
	}
	x.ahead.end()
	x.workers.Wait() // they may still have answers
	close(x.out)
	select {
	case err := <-sent:
		return err
	case <-time.After(lastWords):
		return status.Error(codes.Aborted, "the client does not take its answers")
	}
}

// lastWords is how long the end of a stream waits for its client to take what is queued.
const lastWords = 5 * time.Second

// run attaches and works through the frames until the client ends the stream.
func (x *sessionStream) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = x.service.panicked(p, "a frame")
		}
	}()
	defer x.detach()
	if err := x.attach(); err != nil {
		return err
	}
	id := x.session.ID()
	if !x.service.streams.replace(id, x) {
		return fmt.Errorf("%w: %w", lineage.ErrSessionNotFound, errNewerStream)
	}
	defer x.service.streams.remove(id, x)
	ackCtx, stopAcks := context.WithCancel(x.ctx)
	defer stopAcks()
	x.workers.Add(1)
	go x.acknowledge(ackCtx)
	for {
		r := x.receive(nil)
		if r.err != nil {
			return r.err
		}
		if closing, err := x.work(r); err != nil || closing {
			return err
		}
	}
}

// work handles one frame and gives back what it holds, even when there is a panic.
func (x *sessionStream) work(r received) (closing bool, err error) {
	defer r.done()
	start := time.Now()
	kind, closing, err := x.handle(r)
	x.service.opt.Metrics.Frames.WithLabelValues(kind).Observe(time.Since(start).Seconds())
	return closing, err
}

// receive waits for the next frame; late, if not nil, ends the wait.
func (x *sessionStream) receive(late <-chan time.Time) received {
	if x.ctx.Err() != nil {
		return received{err: x.whyEnded()}
	}
	select {
	case r := <-x.inbox.frames:
		return r
	case err := <-x.inbox.stalled:
		return received{err: err}
	case <-late:
		return received{err: invalid(fmt.Sprintf("no attach frame within %s", x.service.opt.AttachTimeout))}
	case <-x.ctx.Done():
		return received{err: x.whyEnded()}
	}
}

// whyEnded says why the context has ended: the client is gone, or the server ends the stream.
func (x *sessionStream) whyEnded() error {
	if x.stream.Context().Err() != nil {
		return errClientGone
	}
	return fmt.Errorf("%w: %w", lineage.ErrSessionNotFound, context.Cause(x.ctx))
}

func (x *sessionStream) attach() error {
	late := time.NewTimer(x.service.opt.AttachTimeout)
	defer late.Stop()
	first := x.receive(late.C)
	if first.err != nil {
		return first.err
	}
	defer first.done()
	attach := first.frame.GetAttach()
	if attach == nil {
		return invalid("the first frame of a stream must be attach")
	}
	if err := checkVersion(attach.GetProtocolVersion()); err != nil {
		return err
	}
	var err error
	x.session, err = x.service.lineage.Attach(x.ctx, attach.GetSessionId(), attach.GetSessionToken())
	if err != nil {
		return err
	}
	durable, _, err := x.session.Durable()
	if err != nil {
		return err
	}
	if err := x.ahead.begin(x.session); err != nil {
		return err
	}
	return x.send(&pb.ServerFrame{Frame: &pb.ServerFrame_Attached{Attached: &pb.Attached{
		AppliedSeq: x.session.AppliedSeq(), DurableSeq: min(durable, x.session.AppliedSeq()),
	}}})
}

// detach lets go of the session if the stream has hold of it, even when attaching failed after that: the server would
// otherwise renew the session's lease for ever.
func (x *sessionStream) detach() {
	if x.session != nil {
		x.session.Detach()
	}
}

// handle works on one frame; closing says that it was the last.
func (x *sessionStream) handle(r received) (kind string, closing bool, err error) {
	switch f := r.frame.GetFrame().(type) {
	case *pb.ClientFrame_RegisterState:
		return "register", false, x.register(f.RegisterState)
	case *pb.ClientFrame_Write:
		return "write", false, x.write(f.Write, r.giveBack != nil)
	case *pb.ClientFrame_Read:
		return "read", false, x.answer(f.Read.GetRequestId(), x.readInTurn(f.Read))
	case *pb.ClientFrame_Scan:
		return "scan", false, x.answer(f.Scan.GetRequestId(), x.scan(f.Scan))
	case *pb.ClientFrame_Count:
		return "count", false, x.answer(f.Count.GetRequestId(), x.count(f.Count))
	case *pb.ClientFrame_TakeSnapshot:
		return "snapshot", false, x.answer(f.TakeSnapshot.GetRequestId(), x.snapshot(f.TakeSnapshot))
	case *pb.ClientFrame_Notify:
		return "notify", false, x.session.Notify(x.ctx, f.Notify.GetCheckpointId(), f.Notify.GetCompleted())
	case *pb.ClientFrame_Heartbeat:
		if err := x.session.Renew(x.ctx); err != nil {
			return "heartbeat", false, err
		}
		return "heartbeat", false, x.send(&pb.ServerFrame{Frame: &pb.ServerFrame_HeartbeatAck{HeartbeatAck: &pb.HeartbeatAck{}}})
	case *pb.ClientFrame_Close:
		if err := x.close(); err != nil {
			return "close", false, err
		}
		return "close", true, x.send(&pb.ServerFrame{Frame: &pb.ServerFrame_Closed{Closed: &pb.SessionClosed{}}})
	case *pb.ClientFrame_Attach:
		return "attach", false, invalid("attach may only be the first frame of a stream")
	default:
		return "unknown", false, invalid("frame of unknown kind: the client is newer than this server")
	}
}

// closeTime is how long ending a session may take.
const closeTime = 10 * time.Second

// close ends the session, even when its client, which waits for a moment only, has gone meanwhile: the session would
// hold what it sees until its lease has passed.
func (x *sessionStream) close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.ctx), closeTime)
	defer cancel()
	return x.session.Close(ctx)
}

// maxStates is the highest index of a state.
const maxStates = 32766

func (x *sessionStream) register(r *pb.RegisterState) error {
	known := len(x.states.all())
	if int(r.GetIndex()) != known {
		return invalid(fmt.Sprintf("register_state.index is %d, expected %d", r.GetIndex(), known))
	}
	if known > maxStates {
		return invalid(fmt.Sprintf("register_state.index is %d, allowed are 0 to %d", r.GetIndex(), maxStates))
	}
	number, err := x.session.RegisterState(x.ctx, r.GetName(), lineage.StateKind(r.GetKind()))
	if err != nil {
		return err
	}
	x.states.add(number)
	return nil
}

func (x *sessionStream) state(index uint32) (uint16, error) {
	numbers := x.states.all()
	if int64(index) >= int64(len(numbers)) {
		return 0, invalid(fmt.Sprintf("state is %d, %d are registered on this stream", index, len(numbers)))
	}
	return numbers[index], nil
}

// entries decodes a batch and puts in the session's numbers of the states.
func (x *sessionStream) entries(codec *batchCodec, batch *pb.Batch) ([]lineage.Entry, error) {
	entries, err := codec.decode(batch)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if entries[i].State, err = x.state(uint32(entries[i].State)); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// write applies a frame; admitted says that the budget has made room for it already.
func (x *sessionStream) write(w *pb.Write, admitted bool) error {
	entries, err := x.entries(x.codec, w.GetBatch())
	if err != nil {
		return err
	}
	if !admitted {
		giveBack, err := x.service.budget.take(x.ctx, costOf(entries))
		if err != nil {
			return errClientGone
		}
		defer giveBack()
	}
	bytes := 0
	for i := range entries {
		bytes += len(entries[i].Key) + len(entries[i].Value)
	}
	x.service.opt.Metrics.RowsIn.Add(float64(len(entries)))
	x.service.opt.Metrics.BytesIn.Add(float64(bytes))
	if err := x.session.Write(x.ctx, w.GetSeq(), w.GetEpoch(), entries); err != nil {
		return err
	}
	return x.send(&pb.ServerFrame{Frame: &pb.ServerFrame_WriteAck{WriteAck: &pb.WriteAck{AppliedSeq: w.GetSeq()}}})
}

// readInTurn answers a read after all frames before it.
func (x *sessionStream) readInTurn(r *pb.Read) error {
	keys, err := x.entries(x.codec, r.GetKeys())
	if err != nil {
		return err
	}
	return x.read(x.codec, x.session, r.GetRequestId(), keys)
}

// read answers piece by piece: how many rows a piece asks for follows from how large those before were.
func (x *sessionStream) read(codec *batchCodec, session *lineage.Session, request uint64, keys []lineage.Entry) error {
	send := func(rows []lineage.Entry, last bool) error {
		return x.sendRows(codec, rows, func(batch *pb.Batch, end bool) *pb.ServerFrame {
			return &pb.ServerFrame{Frame: &pb.ServerFrame_ReadResult{ReadResult: &pb.ReadResult{
				RequestId: request, Rows: batch, Last: last && end,
			}}}
		})
	}
	pending := newPieces(len(keys))
	var rows []lineage.Entry // read and not sent yet: less than a frame
	for len(keys) > 0 {
		n := pending.next()
		values, err := session.Read(x.ctx, keys[:n])
		if err != nil {
			return err
		}
		for i, value := range values {
			row := lineage.Entry{Group: keys[i].Group, Op: lineage.OpDelete}
			if value != nil {
				row.Op, row.Value = lineage.OpPut, value
			}
			pending.took(len(value))
			rows = append(rows, row)
		}
		keys = keys[n:]
		if pending.bytes < softFrameBytes && len(keys) > 0 {
			continue
		}
		if err := send(rows, len(keys) == 0); err != nil {
			return err
		}
		rows, pending.bytes = nil, 0
	}
	if pending.asked == 0 {
		return send(nil, true)
	}
	return nil
}

// sendRows sends rows in as many frames as they need, at least one.
func (x *sessionStream) sendRows(codec *batchCodec, rows []lineage.Entry, frame func(batch *pb.Batch, last bool) *pb.ServerFrame) error {
	for {
		n := split(rows, softFrameBytes, int(x.service.limits.GetMaxBatchRows()))
		batch, err := codec.encode(rows[:n])
		if err != nil {
			return err
		}
		x.service.opt.Metrics.RowsOut.Add(float64(n))
		bytes := bytesOf(rows[:n])
		rows = rows[n:]
		if err := x.sendLarge(frame(batch, len(rows) == 0), bytes); err != nil || len(rows) == 0 {
			return err
		}
	}
}

func (x *sessionStream) scan(r *pb.Scan) error {
	state, err := x.state(r.GetState())
	if err != nil {
		return err
	}
	groups, err := toRange("scan.range", r.GetRange())
	if err != nil {
		return err
	}
	if r.GetAfterGroup() > 0x7FFF {
		return invalid(fmt.Sprintf("scan.after_group is %d, key groups are 0 to 32767", r.GetAfterGroup()))
	}
	rows, done, err := x.session.Scan(x.ctx, lineage.ScanRequest{
		State: state, Range: groups, Prefix: r.GetPrefix(), Order: lineage.Order(r.GetOrder()),
		Resume: r.GetResume(), AfterGroup: uint16(r.GetAfterGroup()), AfterKey: r.GetAfterKey(),
		LimitRows: int(r.GetLimitRows()), LimitBytes: pageLimit(r.GetLimitBytes()), KeysOnly: r.GetKeysOnly(),
	})
	if err != nil {
		return err
	}
	batch, err := x.codec.encode(rows)
	if err != nil {
		return err
	}
	x.service.opt.Metrics.RowsOut.Add(float64(len(rows)))
	return x.sendLarge(&pb.ServerFrame{Frame: &pb.ServerFrame_ScanResult{ScanResult: &pb.ScanResult{
		RequestId: r.GetRequestId(), Rows: batch, Done: done,
	}}}, bytesOf(rows))
}

// pageLimit is the size of a page of a scan; 0 = our choice.
func pageLimit(asked uint32) int {
	if asked == 0 {
		return softFrameBytes
	}
	return int(min(asked, softFrameBytes))
}

func (x *sessionStream) count(r *pb.Count) error {
	state, err := x.state(r.GetState())
	if err != nil {
		return err
	}
	groups, err := toRange("count.range", r.GetRange())
	if err != nil {
		return err
	}
	n, err := x.session.Count(x.ctx, state, groups)
	if err != nil {
		return err
	}
	return x.send(&pb.ServerFrame{Frame: &pb.ServerFrame_CountResult{CountResult: &pb.CountResult{
		RequestId: r.GetRequestId(), Rows: n,
	}}})
}

// snapshot records the snapshot in its place among the frames; the answer follows when it is durable.
func (x *sessionStream) snapshot(r *pb.TakeSnapshot) error {
	start := time.Now()
	result, commit, err := x.session.Snapshot(x.ctx, lineage.SnapshotRequest{
		ID: r.GetSnapshotId(), Epoch: r.GetEpoch(), CheckpointID: r.GetCheckpointId(),
		Kind: lineage.SnapshotKind(r.GetKind()), LastSeq: r.GetLastSeq(), Schema: r.GetSchema(), States: stateInfos(r.GetStates()),
	})
	if err != nil {
		return err
	}
	x.workers.Add(1)
	go func() {
		defer x.workers.Done()
		x.awaitSnapshot(r.GetRequestId(), result, commit)
		x.service.opt.Metrics.SnapshotSeconds.Observe(time.Since(start).Seconds())
	}()
	return nil
}

func (x *sessionStream) awaitSnapshot(request uint64, result lineage.SnapshotResult, commit store.Commit) {
	frame := &pb.ServerFrame{Frame: &pb.ServerFrame_SnapshotResult{SnapshotResult: &pb.SnapshotResult{
		RequestId: request, DeltaRows: result.DeltaRows, DeltaBytes: result.DeltaBytes,
	}}}
	if err := commit.Wait(x.ctx); err != nil {
		frame = errorFrame(request, err)
	}
	// A client that is gone asks again when it has attached again.
	_ = x.send(frame)
}

// answer turns the failure of a request into an error frame of that request, unless the client had
// better attach again and repeat it.
func (x *sessionStream) answer(request uint64, err error) error {
	if err == nil || x.ctx.Err() != nil {
		return err
	}
	code, _ := classify(err)
	x.service.opt.Metrics.Errors.WithLabelValues(code.String()).Inc()
	if retryable(code) || code == pb.ErrorCode_ERROR_FENCED || code == pb.ErrorCode_ERROR_SESSION_NOT_FOUND {
		return err
	}
	return x.send(errorFrame(request, err))
}

func errorFrame(request uint64, err error) *pb.ServerFrame {
	code, _ := classify(err)
	return &pb.ServerFrame{Frame: &pb.ServerFrame_Error{Error: &pb.Error{
		RequestId: request, Code: code, Message: err.Error(), Fatal: request == 0 && !retryable(code),
	}}}
}

// report tells the client why the stream ends.
func (x *sessionStream) report(err error) {
	code, _ := classify(err)
	x.service.opt.Metrics.Errors.WithLabelValues(code.String()).Inc()
	event := x.service.opt.Log.Warn()
	if x.session != nil {
		event = event.Uint64("session", x.session.ID())
	}
	event.Err(err).Str("code", code.String()).Msg("session stream ends with an error")
	select {
	case x.out <- answer{frame: errorFrame(0, err)}:
	case <-x.stream.Context().Done(): // there is nobody to tell
	case <-time.After(lastWords):
	}
}

// acknowledge tells the client about durable writes.
func (x *sessionStream) acknowledge(ctx context.Context) {
	defer x.workers.Done()
	told := uint64(0)
	for {
		durable, news, err := x.session.Durable()
		if err != nil {
			x.cancel(fmt.Errorf("%w: durability of writes is not known: %w", store.ErrUnavailable, err))
			return
		}
		if durable > told {
			told = durable
			if x.send(&pb.ServerFrame{Frame: &pb.ServerFrame_WriteAck{WriteAck: &pb.WriteAck{DurableSeq: durable}}}) != nil {
				return
			}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
	}
}

// send queues a small frame for the client.
func (x *sessionStream) send(frame *pb.ServerFrame) error { return x.sendLarge(frame, 0) }

// sendLarge queues a frame with so many bytes of rows, when those before it leave room.
func (x *sessionStream) sendLarge(frame *pb.ServerFrame, bytes int64) error {
	bytes = min(bytes, maxUnsent*softFrameBytes)
	if bytes > 0 {
		if err := x.unsent.Acquire(x.ctx, bytes); err != nil {
			return errClientGone
		}
	}
	select {
	case x.out <- answer{frame, bytes}:
		return nil
	case <-x.ctx.Done():
		return errClientGone
	}
}

func bytesOf(rows []lineage.Entry) (n int64) {
	for i := range rows {
		n += int64(len(rows[i].Key) + len(rows[i].Value))
	}
	return n
}

// sendAll sends what is queued. After a failure it goes on taking frames, so that nobody waits.
func (x *sessionStream) sendAll() error {
	var failed error
	for a := range x.out {
		if failed == nil {
			if failed = x.stream.Send(a.frame); failed != nil {
				x.cancel(errClientGone)
			}
		}
		if a.bytes > 0 {
			x.unsent.Release(a.bytes)
		}
	}
	return failed
}
