package bridge

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/lineage"
)

func trailerOf(code pb.ErrorCode) metadata.MD { return metadata.Pairs(errorTrailer, code.String()) }

func statusError(code codes.Code, err error) error { return status.Error(code, err.Error()) }

// Status implements AdminService.
func (s *Service) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	bytes, err := s.lineage.StoreBytes(ctx)
	if err != nil {
		return nil, callError(ctx, err)
	}
	totals := s.lineage.Totals()
	return &pb.StatusResponse{
		ServerId:        s.opt.ServerID,
		Version:         s.opt.Version,
		ProtocolVersion: ProtocolVersion,
		Store:           s.lineage.StoreName(),
		StartedUnixMs:   s.started.UnixMilli(),
		RowSpaces:       totals.Spaces,
		Sessions:        totals.Sessions,
		Snapshots:       totals.Snapshots,
		BytesUsed:       bytes,
	}, nil
}

// ListRowSpaces implements AdminService.
func (s *Service) ListRowSpaces(ctx context.Context, r *pb.ListRowSpacesRequest) (*pb.ListRowSpacesResponse, error) {
	spaces, err := s.lineage.Spaces(ctx, r.GetCountRows())
	if err != nil {
		return nil, callError(ctx, err)
	}
	response := &pb.ListRowSpacesResponse{}
	for _, x := range spaces {
		response.RowSpaces = append(response.RowSpaces, &pb.RowSpaceInfo{
			Id: x.ID, CreatedUnixMs: unixMs(x.Created), CreatedByJob: x.JobID, CreatedByOperator: x.Operator,
			KeyGroupCount: x.GroupCount, Sessions: x.Sessions, Snapshots: x.Snapshots,
			States: stateEntries(x.States), Bytes: x.Bytes, Rows: x.Rows, Versions: x.Versions,
		})
	}
	return response, nil
}

// ListSessions implements AdminService.
func (s *Service) ListSessions(ctx context.Context, _ *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	sessions, err := s.lineage.Sessions(ctx)
	if err != nil {
		return nil, callError(ctx, err)
	}
	response := &pb.ListSessionsResponse{}
	for _, x := range sessions {
		response.Sessions = append(response.Sessions, &pb.SessionInfo{
			SessionId: x.ID, JobId: x.JobID, JobName: x.JobName, Operator: x.Operator, Attempt: x.Attempt,
			Range: groupRange(x.Range), Generation: x.Generation, Epoch: x.Epoch, Attached: x.Attached,
			LeaseExpiresUnixMs: unixMs(x.LeaseExpires), RowSpaces: x.Spaces,
		})
	}
	return response, nil
}

// ListSnapshots implements AdminService.
func (s *Service) ListSnapshots(ctx context.Context, r *pb.ListSnapshotsRequest) (*pb.ListSnapshotsResponse, error) {
	snapshots, err := s.lineage.Snapshots(ctx, r.GetJobId())
	if err != nil {
		return nil, callError(ctx, err)
	}
	response := &pb.ListSnapshotsResponse{}
	for _, x := range snapshots {
		response.Snapshots = append(response.Snapshots, snapshotInfo(x))
	}
	return response, nil
}

// CollectGarbage implements AdminService.
func (s *Service) CollectGarbage(ctx context.Context, r *pb.CollectGarbageRequest) (*pb.CollectGarbageResponse, error) {
	report, err := s.lineage.Collect(ctx, r.GetCheckOnly())
	if err != nil {
		return nil, callError(ctx, err)
	}
	return &pb.CollectGarbageResponse{
		ExpiredSessions: report.ExpiredSessions, ReleasedSnapshots: report.ReleasedSnapshots,
		DroppedRowSpaces: report.DroppedSpaces, ScannedRows: report.ScannedRows,
		RemovedRows: report.RemovedRows, RemovedVersions: report.RemovedVersions,
	}, nil
}

func unixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func groupRange(r lineage.Range) *pb.GroupRange {
	return &pb.GroupRange{First: uint32(r.First), Last: uint32(r.Last)}
}

func stateEntries(states []lineage.StateInfo) []*pb.StateEntry {
	entries := make([]*pb.StateEntry, len(states))
	for i, s := range states {
		entries[i] = &pb.StateEntry{Index: uint32(s.Number), Name: s.Name, Kind: pb.StateKind(s.Kind)}
	}
	return entries
}

func stateInfos(entries []*pb.StateEntry) []lineage.StateInfo {
	states := make([]lineage.StateInfo, len(entries))
	for i, e := range entries {
		states[i] = lineage.StateInfo{Number: uint16(i), Name: e.GetName(), Kind: lineage.StateKind(e.GetKind())}
	}
	return states
}

func snapshotInfo(x lineage.SnapshotInfo) *pb.SnapshotInfo {
	return &pb.SnapshotInfo{
		SnapshotId: x.ID, JobId: x.JobID, JobName: x.JobName, Operator: x.Operator, CheckpointId: x.CheckpointID,
		Kind: pb.SnapshotKind(x.Kind), CreatedUnixMs: unixMs(x.Created), KeyGroupCount: x.GroupCount,
		Range: groupRange(x.Range), SessionId: x.SessionID, Generation: x.Generation, Epoch: x.Epoch,
		Confirmed: x.Confirmed, AbandonedUnixMs: unixMs(x.Abandoned), RowSpaces: x.Spaces, Schema: x.Schema,
		States: stateEntries(x.States),
	}
}
