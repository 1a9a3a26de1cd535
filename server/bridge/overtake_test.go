package bridge_test

import (
	"context"
	"fmt"
	"testing"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

// heldStore keeps transactions waiting while it is held.
type heldStore struct {
	store.Store
	held    chan chan struct{} // holds a channel that is closed when transactions may go on
	waiting chan struct{}      // gets something when a transaction waits
}

func newHeldStore() *heldStore {
	return &heldStore{memory.New(), make(chan chan struct{}, 1), make(chan struct{}, 100)}
}

// hold keeps all later transactions waiting until release is called.
func (s *heldStore) hold() (release func()) {
	gate := make(chan struct{})
	s.held <- gate
	return func() { close(<-s.held) }
}

func (s *heldStore) Update(ctx context.Context, fn func(tx store.Tx) error) (store.Commit, error) {
	select {
	case gate := <-s.held:
		s.held <- gate
		s.waiting <- struct{}{}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	default:
	}
	return s.Store.Update(ctx, fn)
}

// ask sends a read with a number of its own.
func (s *session) ask(number uint64, overtakes bool, state uint32, key string) {
	s.t.Helper()
	frame := readFrame(state, key)
	frame.GetRead().RequestId, frame.GetRead().Overtakes = number, overtakes
	s.send(frame)
}

// answer expects the next answer to be that of a request, and returns its only value.
func (s *session) answer(number uint64) string {
	s.t.Helper()
	result := s.receive().GetReadResult()
	if result.GetRequestId() != number || len(result.GetRows().GetEntries()) != 1 {
		s.t.Fatalf("answer %v, expected one to request %d", result, number)
	}
	return string(result.GetRows().GetEntries()[0].GetValue())
}

// applied waits until the server has said that a write is applied.
func (s *session) applied(seq uint64) {
	s.t.Helper()
	for {
		frame, err := s.stream.Recv()
		if err != nil {
			s.t.Fatal(err)
		}
		if frame.GetWriteAck().GetAppliedSeq() >= seq {
			return
		}
	}
}

func startHeld(t *testing.T) (*heldStore, *session) {
	st := newHeldStore()
	return st, open(t, dial(t, startServerOn(t, st, lineage.Options{}, bridge.Options{})), "a")
}

func TestReadOvertakesWrites(t *testing.T) {
	st, s := startHeld(t)
	s.write(put("a", "1"))
	s.applied(1)
	release := st.hold()
	for i := range 20 {
		s.write(put("b", fmt.Sprint(i)))
	}
	s.ask(1, false, 0, "b")
	s.ask(2, true, 0, "a")
	if got := s.answer(2); got != "1" {
		t.Errorf("a is %q", got)
	}
	release()
	if got := s.answer(1); got != "19" {
		t.Errorf("the read in its turn found %q", got)
	}
}

// A read whose state is registered by a frame that waits has to wait, too.
func TestReadOvertakesNoRegistration(t *testing.T) {
	st, s := startHeld(t)
	s.write(put("a", "1"))
	s.applied(1)
	release := st.hold()
	s.write(put("a", "2"))
	s.send(&pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: &pb.RegisterState{Index: 2, Name: "w", Kind: pb.StateKind_STATE_KIND_VALUE}}})
	s.ask(1, true, 2, "x")
	s.ask(2, true, 0, "y")
	s.answer(2)
	release()
	if got := s.answer(1); got != "" {
		t.Errorf("a new state has %q", got)
	}
}

// A read sees no write that was sent after it.
func TestReadIsNotOvertaken(t *testing.T) {
	s := open(t, dial(t, startServer(t, bridge.Options{})), "a")
	for i := range uint64(2000) {
		s.write(put("a", fmt.Sprint(i)))
		s.applied(s.seq)
		s.ask(i+1, true, 0, "a")
		s.write(put("a", "later"))
		if got := s.answer(i + 1); got != fmt.Sprint(i) {
			t.Fatalf("read %q after %d was written", got, i)
		}
	}
}
