package ndb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/tests/ndb"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

const (
	keyGroups    = 8
	frames       = 400
	rowsPerFrame = 60
	scanPage     = 8 // so few rows travel as protobuf, not as Arrow
)

// TestServersShareOneStore runs two servers over one cluster.
func TestServersShareOneStore(t *testing.T) {
	env := startEnvironment(t)
	t.Run("fencing", func(t *testing.T) { testFencing(t, env) })
	t.Run("moves", func(t *testing.T) { testSessionMoves(t, env) })
}

// testSessionMoves kills servers, MySQL servers and a data node under a session that
// writes. It goes on, on another server if need be, and every frame is applied exactly once.
func testSessionMoves(t *testing.T, env *environment) {
	c := newClient(t, env.servers)
	c.job = strings.Repeat("cd", 16)
	c.openSession(t, "one")
	faults := map[int]func() error{
		50:  env.killServer,
		100: func() error { return env.cluster.KillMySQL(1) },
		150: env.killServer,
		200: func() error { return env.cluster.KillDataNode(env.cluster.DataNodeIDs()[rand.IntN(2)]) },
		250: env.killServer,
		300: func() error { return env.cluster.StartMySQL(t.Context(), 1) },
		350: env.killServer,
	}
	for seq := uint64(1); seq <= frames; seq++ {
		if fault := faults[int(seq)]; fault != nil {
			if err := fault(); err != nil {
				t.Fatal(err)
			}
		}
		c.write(t, seq)
	}
	c.drain(t)
	c.compare(t)
	t.Logf("%d streams for %d frames", c.streams, frames)
	if c.streams < 3 {
		t.Error("the session never moved: the test shows nothing")
	}
}

// testFencing: a session that a newer one on another server takes over from must not
// change anything any more.
func testFencing(t *testing.T, env *environment) {
	old := newClient(t, env.servers)
	old.openSession(t, "old")
	old.write(t, 1)
	old.drain(t)
	young := newClient(t, []*stateserver.Server{env.servers[1], env.servers[0]})
	snapshot := old.snapshot(t)
	young.base = snapshot
	young.openSession(t, "young")
	if err := old.tryWrite(2); err != nil {
		t.Fatal(err)
	}
	frame, err := old.stream.Recv()
	if err != nil {
		t.Fatalf("the older session's stream: %v", err)
	}
	if code := frame.GetError().GetCode(); code != pb.ErrorCode_ERROR_FENCED {
		t.Fatalf("the older session got %v, want ERROR_FENCED", frame)
	}
	young.model = old.modelAt(1)
	young.compare(t)
}

// environment is two servers over one cluster.
type environment struct {
	t       *testing.T
	cluster *ndb.Cluster
	servers []*stateserver.Server
	next    int
}

func startEnvironment(t *testing.T) *environment {
	ndb.Require(t, ndb.TestNDBVariable)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	cluster, err := ndb.Start(ctx, ndb.Options{Dir: filepath.Join(dir, "ndb"), DataNodes: 2, Replicas: 2, MySQLServers: 2, DataMemory: "256M"})
	ndb.SkipIfAbsent(t, err)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.KillAll() })
	binary := filepath.Join(dir, "flinkndb")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/flinkndb/flinkndb/server").CombinedOutput(); err != nil {
		t.Fatalf("building the server: %v\n%s", err, out)
	}
	env := &environment{t: t, cluster: cluster}
	for _, name := range []string{"a", "b"} {
		s, err := stateserver.Start(ctx, binary, filepath.Join(dir, name), cluster.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				log, _ := os.ReadFile(s.LogFile())
				t.Logf("log of server %s:\n%s", name, log[max(0, len(log)-3000):])
			}
			_ = s.Kill()
		})
		env.servers = append(env.servers, s)
	}
	return env
}

// killServer kills one server after the other, and brings the one back that was killed before.
func (e *environment) killServer() error {
	if err := e.servers[e.next].Kill(); err != nil {
		return err
	}
	e.next = 1 - e.next
	if e.next == 1 {
		return nil // the other one still runs
	}
	return e.servers[1-e.next].Restart(e.t.Context())
}

// client is a session as the shim has it: it keeps frames until they are durable, and moves to
// another server when its stream breaks.
type client struct {
	servers []*stateserver.Server
	at      int
	job     string
	base    string
	token   string
	id      uint64

	conn    *grpc.ClientConn
	stream  grpc.BidiStreamingClient[pb.ClientFrame, pb.ServerFrame]
	streams int

	unacked []*pb.Write
	durable uint64
	model   map[string]string // what the rows must hold
}

func newClient(t *testing.T, servers []*stateserver.Server) *client {
	c := &client{servers: servers, job: strings.Repeat("ab", 16), model: map[string]string{}}
	t.Cleanup(func() {
		if c.conn != nil {
			_ = c.conn.Close()
		}
	})
	return c
}

func (c *client) dial() error {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	var err error
	c.conn, err = grpc.NewClient(c.servers[c.at].Address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	return err
}

func (c *client) openSession(t *testing.T, token string) {
	t.Helper()
	if err := c.dial(); err != nil {
		t.Fatal(err)
	}
	c.token = token
	request := &pb.OpenSessionRequest{
		ProtocolVersion: bridge.ProtocolVersion, SessionToken: token, JobId: c.job, JobName: "test", Operator: "test",
		KeyGroupCount: keyGroups, Range: &pb.GroupRange{First: 0, Last: keyGroups - 1}, LeaseMs: 300000,
	}
	if c.base != "" {
		request.Bases = []*pb.Base{{SnapshotId: c.base, Range: request.Range}}
	}
	response, err := pb.NewStateServiceClient(c.conn).OpenSession(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	c.id = response.GetSessionId()
	c.reattach(t)
}

// reattach opens a stream on some server and sends again what may be lost.
func (c *client) reattach(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		err := c.attach(t.Context())
		if err == nil {
			c.streams++
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no server takes the session: %v", err)
		}
		c.at = (c.at + 1) % len(c.servers)
		time.Sleep(100 * time.Millisecond)
		if err := c.dial(); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *client) attach(ctx context.Context) error {
	stream, err := pb.NewStateServiceClient(c.conn).Session(ctx)
	if err != nil {
		return err
	}
	err = stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Attach{Attach: &pb.Attach{ProtocolVersion: bridge.ProtocolVersion, SessionId: c.id, SessionToken: c.token}}})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	frame, err := stream.Recv()
	if err != nil {
		return err
	}
	attached := frame.GetAttached()
	if attached == nil {
		return fmt.Errorf("the answer to Attach is %v", frame)
	}
	c.stream = stream
	for index, s := range []struct {
		name string
		kind pb.StateKind
	}{{"values", pb.StateKind_STATE_KIND_VALUE}, {"lists", pb.StateKind_STATE_KIND_LIST}} {
		register := &pb.RegisterState{Index: uint32(index), Name: s.name, Kind: s.kind}
		if err := stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_RegisterState{RegisterState: register}}); err != nil {
			return err
		}
	}
	c.acknowledge(attached.GetDurableSeq())
	for _, w := range c.unacked {
		if w.GetSeq() <= attached.GetAppliedSeq() {
			continue
		}
		if err := stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: w}}); err != nil {
			return err
		}
	}
	return nil
}

func (c *client) acknowledge(durable uint64) {
	c.durable = max(c.durable, durable)
	for len(c.unacked) > 0 && c.unacked[0].GetSeq() <= c.durable {
		c.unacked = c.unacked[1:]
	}
}

// makeFrame makes frame seq: values that name it, and an element for a list of each key group, which
// would be there twice if the frame were applied twice.
func makeFrame(seq uint64) *pb.Write {
	w := &pb.Write{Seq: seq, Epoch: 1 + seq/100, Batch: &pb.Batch{}}
	for i := range rowsPerFrame {
		w.Batch.Entries = append(w.Batch.Entries, &pb.Entry{State: 0, Group: uint32(i % keyGroups), Op: pb.Op_OP_PUT,
			Key: []byte(fmt.Sprintf("key%d", (seq*7+uint64(i))%500)), Value: []byte(fmt.Sprintf("frame %d", seq))})
	}
	for g := range uint32(keyGroups) {
		w.Batch.Entries = append(w.Batch.Entries, &pb.Entry{State: 1, Group: g, Op: pb.Op_OP_APPEND, Key: []byte("list"), Value: []byte(fmt.Sprint(seq))})
	}
	return w
}

func rowName(state, group uint32, key []byte) string {
	return fmt.Sprintf("%d/%d/%s", state, group, key)
}

func apply(model map[string]string, w *pb.Write) {
	for _, e := range w.GetBatch().GetEntries() {
		name := rowName(e.GetState(), e.GetGroup(), e.GetKey())
		if old, ok := model[name]; ok && e.GetOp() == pb.Op_OP_APPEND {
			model[name] = old + "," + string(e.GetValue())
		} else {
			model[name] = string(e.GetValue())
		}
	}
}

func (c *client) modelAt(seq uint64) map[string]string {
	model := map[string]string{}
	for s := uint64(1); s <= seq; s++ {
		apply(model, makeFrame(s))
	}
	return model
}

// tryWrite sends a frame without minding a broken stream.
func (c *client) tryWrite(seq uint64) error {
	w := makeFrame(seq)
	c.unacked = append(c.unacked, w)
	apply(c.model, w)
	return c.stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Write{Write: w}})
}

// write sends a frame and, when many are not durable yet, waits for some.
func (c *client) write(t *testing.T, seq uint64) {
	t.Helper()
	if err := c.tryWrite(seq); err != nil {
		c.reattach(t)
	}
	for len(c.unacked) > 10 {
		c.receive(t)
	}
}

// receive takes one frame of the server.
func (c *client) receive(t *testing.T) *pb.ServerFrame {
	t.Helper()
	frame, err := c.stream.Recv()
	if err != nil {
		c.reattach(t)
		return nil
	}
	switch f := frame.GetFrame().(type) {
	case *pb.ServerFrame_WriteAck:
		c.acknowledge(f.WriteAck.GetDurableSeq())
	case *pb.ServerFrame_Error:
		if f.Error.GetFatal() || f.Error.GetCode() != pb.ErrorCode_ERROR_STORE_UNAVAILABLE {
			t.Fatalf("the server says %v", f.Error)
		}
	}
	return frame
}

// drain waits until everything is durable.
func (c *client) drain(t *testing.T) {
	t.Helper()
	for len(c.unacked) > 0 {
		c.receive(t)
	}
}

// snapshot takes a snapshot and returns its id.
func (c *client) snapshot(t *testing.T) string {
	t.Helper()
	const id = "11111111-2222-3333-4444-555555555555"
	err := c.stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_TakeSnapshot{TakeSnapshot: &pb.TakeSnapshot{
		RequestId: 1, SnapshotId: id, Epoch: 1, CheckpointId: 1, Kind: pb.SnapshotKind_SNAPSHOT_KIND_CHECKPOINT,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if frame := c.receive(t); frame.GetSnapshotResult() != nil {
			return id
		}
	}
}

// compare reads all rows and compares them with the model.
func (c *client) compare(t *testing.T) {
	t.Helper()
	got := map[string]string{}
	for state := range uint32(2) {
		for group := range uint32(keyGroups) {
			c.scan(t, state, group, got)
		}
	}
	if len(got) != len(c.model) {
		t.Errorf("%d rows, want %d", len(got), len(c.model))
	}
	for name, want := range c.model {
		if got[name] != want {
			t.Errorf("row %s is %q, want %q", name, got[name], want)
		}
	}
}

func (c *client) scan(t *testing.T, state, group uint32, rows map[string]string) {
	t.Helper()
	request := &pb.Scan{RequestId: 100 + uint64(state*keyGroups+group), State: state, Range: &pb.GroupRange{First: group, Last: group}, LimitRows: scanPage}
	for {
		if err := c.stream.Send(&pb.ClientFrame{Frame: &pb.ClientFrame_Scan{Scan: request}}); err != nil {
			t.Fatal(err)
		}
		frame := c.receive(t)
		for frame.GetScanResult() == nil {
			frame = c.receive(t)
		}
		result := frame.GetScanResult()
		entries := result.GetRows().GetEntries()
		for _, e := range entries {
			rows[rowName(state, e.GetGroup(), e.GetKey())] = string(e.GetValue())
		}
		if result.GetDone() {
			return
		}
		if len(entries) == 0 {
			t.Fatal("the answer to a scan comes as Arrow, which this client does not read")
		}
		last := entries[len(entries)-1]
		request.Resume, request.AfterGroup, request.AfterKey = true, last.GetGroup(), last.GetKey()
	}
}
