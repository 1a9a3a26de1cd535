package bridge

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/lineage"
)

// ProtocolVersion is the version of the wire contract that this server speaks.
const ProtocolVersion = 2

// frameOverhead is what a frame may take beside keys and values.
const frameOverhead = 1 << 20

// softFrameBytes is the size at which answers are split into several frames.
const softFrameBytes = 1 << 20

// Defaults of Options, and what one attached session may take beside the budget that all share: what has
// come and is not worked on yet, the frame that is worked on, and answers that it does not take.
const (
	DefaultMaxSessions      = 1024
	DefaultMaxInflightBytes = 512 << 20
	SessionBytes            = WindowBytes + receivedBytes + maxMessageBytes + (2+maxUnsent)*softFrameBytes
)

// WindowBytes is gRPC's flow-control window: how much a client may send ahead of what is received.
const WindowBytes = 256 << 10

// Options are the settings of a Service.
type Options struct {
	ServerID string
	Version  string
	// MaxBatchRows is how many entries a batch may have. The default value is 65,536.
	MaxBatchRows int
	// MaxSessions is how many sessions may be attached at once. The default value is 1024.
	MaxSessions int
	// MaxInflightBytes bounds the memory of frames that are worked on, of all sessions together; above it
	// they wait in turn. The default value is 512 MiB.
	MaxInflightBytes int64
	// AttachTimeout is how long a stream may wait with its first frame. The default value is 10 s.
	AttachTimeout time.Duration
	// PartPatience is how long the parts of a frame may take, beside a second for each MiB: a client that
	// stops half way must not keep its room for ever. The default value is 30 s.
	PartPatience time.Duration
	Log          zerolog.Logger
	Metrics      *Metrics
}

// Service implements StateService and AdminService over the lineage layer. For concurrent use.
type Service struct {
	pb.UnimplementedStateServiceServer
	pb.UnimplementedAdminServiceServer

	lineage *lineage.Lineage
	opt     Options
	limits  *pb.Limits
	started time.Time
	streams *streamTable
	budget  *budget
}

// New returns a service.
func New(l *lineage.Lineage, opt Options) *Service {
	if opt.MaxBatchRows == 0 {
		opt.MaxBatchRows = 1 << 16
	}
	if opt.MaxSessions == 0 {
		opt.MaxSessions = DefaultMaxSessions
	}
	if opt.MaxInflightBytes == 0 {
		opt.MaxInflightBytes = DefaultMaxInflightBytes
	}
	if opt.AttachTimeout == 0 {
		opt.AttachTimeout = 10 * time.Second
	}
	if opt.PartPatience == 0 {
		opt.PartPatience = 30 * time.Second
	}
	rows := l.Limits()
	limits := &pb.Limits{
		MaxValueBytes:   uint32(rows.MaxValueBytes),
		MaxKeyBytes:     uint32(rows.MaxKeyBytes),
		MaxBatchRows:    uint32(opt.MaxBatchRows),
		MaxMessageBytes: maxMessageBytes,
	}
	limits.MaxFrameBytes = limits.MaxValueBytes + limits.MaxKeyBytes + frameOverhead
	return &Service{
		lineage: l, opt: opt, limits: limits, started: time.Now(), streams: newStreamTable(),
		budget: newBudget(opt.MaxInflightBytes, opt.Metrics.Inflight),
	}
}

// Register adds the services to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	pb.RegisterStateServiceServer(r, s)
	pb.RegisterAdminServiceServer(r, s)
}

// MaxReceiveBytes is what gRPC must let in: larger frames come in parts.
func (s *Service) MaxReceiveBytes() int { return maxMessageBytes }

// MaxSendBytes is what gRPC must let out.
func (s *Service) MaxSendBytes() int { return int(s.limits.GetMaxFrameBytes()) + frameOverhead }

func checkVersion(version uint32) error {
	if version == ProtocolVersion {
		return nil
	}
	return &wireError{pb.ErrorCode_ERROR_VERSION_MISMATCH, codes.FailedPrecondition, fmt.Sprintf(
		"protocol_version is %d, this server speaks %d: use the shim and the server of the same release", version, ProtocolVersion)}
}

// OpenSession implements StateService.
func (s *Service) OpenSession(ctx context.Context, r *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	if err := checkVersion(r.GetProtocolVersion()); err != nil {
		return nil, callError(ctx, err)
	}
	request, err := toOpenRequest(r)
	if err != nil {
		return nil, callError(ctx, err)
	}
	result, err := s.lineage.Open(ctx, request)
	if err != nil {
		return nil, callError(ctx, err)
	}
	s.opt.Log.Info().Uint64("session", result.SessionID).Str("job", r.GetJobId()).Str("operator", r.GetOperator()).
		Uint32("first_group", r.GetRange().GetFirst()).Uint32("last_group", r.GetRange().GetLast()).
		Int("bases", len(r.GetBases())).Str("client", r.GetClientVersion()).Msg("session opened")
	return &pb.OpenSessionResponse{
		SessionId:     result.SessionID,
		Generation:    result.Generation,
		ServerId:      s.opt.ServerID,
		ServerVersion: s.opt.Version,
		Limits:        s.limits,
		LeaseMs:       uint32(result.Lease.Milliseconds()),
		Empty:         result.Empty,
		BaseSchemas:   result.BaseSchemas,
	}, nil
}

func toOpenRequest(r *pb.OpenSessionRequest) (lineage.OpenRequest, error) {
	groups, err := toRange("range", r.GetRange())
	if err != nil {
		return lineage.OpenRequest{}, err
	}
	request := lineage.OpenRequest{
		Token: r.GetSessionToken(), JobID: r.GetJobId(), JobName: r.GetJobName(), Operator: r.GetOperator(),
		Attempt: r.GetAttempt(), GroupCount: r.GetKeyGroupCount(), Range: groups,
		Lease: time.Duration(r.GetLeaseMs()) * time.Millisecond,
	}
	for i, b := range r.GetBases() {
		groups, err := toRange(fmt.Sprintf("bases[%d].range", i), b.GetRange())
		if err != nil {
			return lineage.OpenRequest{}, err
		}
		request.Bases = append(request.Bases, lineage.Base{SnapshotID: b.GetSnapshotId(), Range: groups})
	}
	return request, nil
}

func toRange(field string, r *pb.GroupRange) (lineage.Range, error) {
	if r.GetFirst() > 0x7FFF || r.GetLast() > 0x7FFF || r.GetFirst() > r.GetLast() {
		return lineage.Range{}, invalid(fmt.Sprintf("%s is %d to %d, key groups are 0 to 32767", field, r.GetFirst(), r.GetLast()))
	}
	return lineage.Range{First: uint16(r.GetFirst()), Last: uint16(r.GetLast())}, nil
}

// GetSnapshot implements StateService.
func (s *Service) GetSnapshot(ctx context.Context, r *pb.GetSnapshotRequest) (*pb.SnapshotInfo, error) {
	info, err := s.lineage.Snapshot(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, callError(ctx, err)
	}
	return snapshotInfo(info), nil
}

// ReleaseSnapshot implements StateService.
func (s *Service) ReleaseSnapshot(ctx context.Context, r *pb.ReleaseSnapshotRequest) (*pb.ReleaseSnapshotResponse, error) {
	existed, err := s.lineage.Release(ctx, r.GetSnapshotId())
	if err != nil {
		return nil, callError(ctx, err)
	}
	s.opt.Log.Debug().Str("snapshot", r.GetSnapshotId()).Bool("existed", existed).Msg("snapshot released")
	return &pb.ReleaseSnapshotResponse{Existed: existed}, nil
}

// ReadSnapshot implements StateService.
func (s *Service) ReadSnapshot(r *pb.ReadSnapshotRequest, stream grpc.ServerStreamingServer[pb.ReadSnapshotResponse]) error {
	if err := s.readSnapshot(r, stream); err != nil {
		code, statusCode := classify(err)
		stream.SetTrailer(trailerOf(code))
		return statusError(statusCode, err)
	}
	return nil
}

func (s *Service) readSnapshot(r *pb.ReadSnapshotRequest, stream grpc.ServerStreamingServer[pb.ReadSnapshotResponse]) (err error) {
	ctx := stream.Context()
	var groups *lineage.Range
	if r.GetRange() != nil {
		asked, err := toRange("range", r.GetRange())
		if err != nil {
			return err
		}
		groups = &asked
	}
	codec, err := newBatchCodec(s.limits)
	if err != nil {
		return err
	}
	reader, err := s.lineage.OpenReader(ctx, lineage.ReadRequest{SnapshotID: r.GetSnapshotId(), Range: groups, GroupsOnly: r.GetGroupsOnly()})
	if err != nil {
		return err
	}
	defer func() {
		// The pin must go even when the client is gone.
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if closeErr := reader.Close(closeCtx); closeErr != nil && err == nil {
			err = closeErr
		}
	}()
	header := &pb.SnapshotHeader{Info: snapshotInfo(reader.Info()), States: stateEntries(reader.States())}
	if err := stream.Send(&pb.ReadSnapshotResponse{Header: header}); err != nil || r.GetHeaderOnly() {
		return err
	}
	for {
		rows, err := reader.Next(ctx)
		if err != nil || len(rows) == 0 {
			return err
		}
		for len(rows) > 0 {
			n := split(rows, softFrameBytes, int(s.limits.GetMaxBatchRows()))
			batch, err := codec.encode(rows[:n])
			if err != nil {
				return err
			}
			if err := stream.Send(&pb.ReadSnapshotResponse{Rows: batch}); err != nil {
				return err
			}
			rows = rows[n:]
		}
	}
}
