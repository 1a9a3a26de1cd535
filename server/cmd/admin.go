package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
)

func newStatusCommand() *cobra.Command {
	flags := &clientFlags{}
	c := &cobra.Command{
		Use:   "status",
		Short: "Show what a running server holds: row spaces, sessions, snapshots, sizes",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withAdmin(c.Context(), func(ctx context.Context, _ *grpc.ClientConn, admin pb.AdminServiceClient) error {
				status, err := admin.Status(ctx, &pb.StatusRequest{})
				if err != nil {
					return err
				}
				return flags.print(c.OutOrStdout(), status, func(w io.Writer) { printStatus(w, status) })
			})
		},
	}
	flags.register(c)
	return c
}

func printStatus(w io.Writer, s *pb.StatusResponse) {
	row(w, "server", s.GetServerId())
	row(w, "version", s.GetVersion(), "protocol", s.GetProtocolVersion())
	row(w, "store", s.GetStore())
	row(w, "started", timeText(s.GetStartedUnixMs()))
	row(w, "row spaces", s.GetRowSpaces())
	row(w, "sessions", s.GetSessions())
	row(w, "snapshots", s.GetSnapshots())
	row(w, "store size", bytesText(s.GetBytesUsed()))
}

func newSpacesCommand() *cobra.Command {
	flags := &clientFlags{}
	var count bool
	c := &cobra.Command{
		Use:   "spaces",
		Short: "List row spaces",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withAdmin(c.Context(), func(ctx context.Context, _ *grpc.ClientConn, admin pb.AdminServiceClient) error {
				list, err := admin.ListRowSpaces(ctx, &pb.ListRowSpacesRequest{CountRows: count})
				if err != nil {
					return err
				}
				return flags.print(c.OutOrStdout(), list, func(w io.Writer) { printSpaces(w, list, count) })
			})
		},
	}
	c.Flags().BoolVar(&count, "count", false, "count rows and versions too: reads everything")
	flags.register(c)
	return c
}

func printSpaces(w io.Writer, list *pb.ListRowSpacesResponse, count bool) {
	header := []any{"SPACE", "JOB", "OPERATOR", "CREATED", "STATES", "SESSIONS", "SNAPSHOTS", "BYTES"}
	if count {
		header = append(header, "ROWS", "VERSIONS")
	}
	row(w, header...)
	for _, s := range list.GetRowSpaces() {
		cells := []any{s.GetId(), s.GetCreatedByJob(), s.GetCreatedByOperator(), timeText(s.GetCreatedUnixMs()),
			len(s.GetStates()), s.GetSessions(), s.GetSnapshots(), bytesText(s.GetBytes())}
		if count {
			cells = append(cells, s.GetRows(), s.GetVersions())
		}
		row(w, cells...)
	}
}

func newSessionsCommand() *cobra.Command {
	flags := &clientFlags{}
	c := &cobra.Command{
		Use:   "sessions",
		Short: "List live sessions",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withAdmin(c.Context(), func(ctx context.Context, _ *grpc.ClientConn, admin pb.AdminServiceClient) error {
				list, err := admin.ListSessions(ctx, &pb.ListSessionsRequest{})
				if err != nil {
					return err
				}
				return flags.print(c.OutOrStdout(), list, func(w io.Writer) {
					row(w, "SESSION", "JOB", "OPERATOR", "GROUPS", "GENERATION", "EPOCH", "ATTACHED", "LEASE ENDS", "SPACES")
					for _, s := range list.GetSessions() {
						row(w, s.GetSessionId(), s.GetJobId(), s.GetOperator(), rangeText(s.GetRange()), s.GetGeneration(),
							s.GetEpoch(), s.GetAttached(), timeText(s.GetLeaseExpiresUnixMs()), idsText(s.GetRowSpaces()))
					}
				})
			})
		},
	}
	flags.register(c)
	return c
}

func newSnapshotsCommand() *cobra.Command {
	flags := &clientFlags{}
	var job string
	var release []string
	c := &cobra.Command{
		Use:   "snapshots",
		Short: "List snapshots, or release some by hand",
		Long: "List the snapshots that a server keeps. Flink releases them when it discards checkpoints;\n" +
			"--release does it for those that Flink lost track of. A released snapshot cannot be restored.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withAdmin(c.Context(), func(ctx context.Context, conn *grpc.ClientConn, admin pb.AdminServiceClient) error {
				if len(release) > 0 {
					return releaseSnapshots(ctx, c.OutOrStdout(), pb.NewStateServiceClient(conn), release)
				}
				list, err := admin.ListSnapshots(ctx, &pb.ListSnapshotsRequest{JobId: job})
				if err != nil {
					return err
				}
				return flags.print(c.OutOrStdout(), list, func(w io.Writer) { printSnapshots(w, list) })
			})
		},
	}
	c.Flags().StringVar(&job, "job", "", "only those of this Flink job id")
	c.Flags().StringSliceVar(&release, "release", nil, "release these snapshots (ids) instead of listing")
	flags.register(c)
	return c
}

func releaseSnapshots(ctx context.Context, w io.Writer, state pb.StateServiceClient, ids []string) error {
	for _, id := range ids {
		answer, err := state.ReleaseSnapshot(ctx, &pb.ReleaseSnapshotRequest{SnapshotId: id})
		if err != nil {
			return fmt.Errorf("release %s: %w", id, err)
		}
		outcome := "released"
		if !answer.GetExisted() {
			outcome = "did not exist"
		}
		if _, err := fmt.Fprintf(w, "%s %s\n", id, outcome); err != nil {
			return err
		}
	}
	return nil
}

func printSnapshots(w io.Writer, list *pb.ListSnapshotsResponse) {
	row(w, "SNAPSHOT", "JOB", "OPERATOR", "CHECKPOINT", "KIND", "CREATED", "GROUPS", "CONFIRMED", "ABANDONED", "SPACES")
	for _, s := range list.GetSnapshots() {
		kind := strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SNAPSHOT_KIND_"))
		row(w, s.GetSnapshotId(), s.GetJobId(), s.GetOperator(), s.GetCheckpointId(), kind, timeText(s.GetCreatedUnixMs()),
			rangeText(s.GetRange()), s.GetConfirmed(), timeText(s.GetAbandonedUnixMs()), idsText(s.GetRowSpaces()))
	}
}

func newGCCommand() *cobra.Command {
	flags := &clientFlags{}
	var check bool
	c := &cobra.Command{
		Use:   "gc",
		Short: "Run one garbage collection pass now, or check what is unreachable",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return flags.withAdmin(c.Context(), func(ctx context.Context, _ *grpc.ClientConn, admin pb.AdminServiceClient) error {
				report, err := admin.CollectGarbage(ctx, &pb.CollectGarbageRequest{CheckOnly: check})
				if err != nil {
					return err
				}
				return flags.print(c.OutOrStdout(), report, func(w io.Writer) { printGarbage(w, report, check) })
			})
		},
	}
	c.Flags().BoolVar(&check, "check", false, "remove nothing, only count")
	flags.register(c)
	return c
}

func printGarbage(w io.Writer, r *pb.CollectGarbageResponse, check bool) {
	verb := "removed"
	if check {
		verb = "unreachable"
	}
	row(w, "expired sessions", r.GetExpiredSessions())
	row(w, "released snapshots", r.GetReleasedSnapshots())
	row(w, "dropped row spaces", r.GetDroppedRowSpaces())
	row(w, "scanned rows", r.GetScannedRows())
	row(w, verb+" rows", r.GetRemovedRows())
	row(w, verb+" versions", r.GetRemovedVersions())
}

// print writes a message as JSON or as the table that fill makes.
func (f *clientFlags) print(w io.Writer, message proto.Message, fill func(io.Writer)) error {
	if f.output == "json" {
		raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(message)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		// protojson varies its white space on purpose; scripts want it stable.
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fill(table)
	return table.Flush()
}

func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = fmt.Sprint(cell)
	}
	// The writer is a tabwriter over a buffer: its error comes with Flush.
	_, _ = fmt.Fprintln(w, strings.Join(texts, "\t"))
}

func timeText(unixMs int64) string {
	if unixMs == 0 {
		return "-"
	}
	return time.UnixMilli(unixMs).Format(time.RFC3339)
}

func rangeText(r *pb.GroupRange) string {
	return fmt.Sprintf("%d-%d", r.GetFirst(), r.GetLast())
}

func idsText(ids []uint64) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.FormatUint(id, 10)
	}
	return strings.Join(texts, ",")
}

func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, suffix := float64(n)/unit, 0
	for value >= unit && suffix < 4 {
		value /= unit
		suffix++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[suffix])
}
