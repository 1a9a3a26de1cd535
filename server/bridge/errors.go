package bridge

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
)

// errorTrailer names the ErrorCode of a failed unary call.
const errorTrailer = "flinkndb-error"

// failure is what one error means on the wire.
type failure struct {
	is     error
	code   pb.ErrorCode
	status codes.Code
}

// failures maps errors of the lower layers; the first that matches counts.
var failures = []failure{
	{lineage.ErrInvalid, pb.ErrorCode_ERROR_INVALID_ARGUMENT, codes.InvalidArgument},
	{lineage.ErrFenced, pb.ErrorCode_ERROR_FENCED, codes.FailedPrecondition},
	{lineage.ErrSessionNotFound, pb.ErrorCode_ERROR_SESSION_NOT_FOUND, codes.NotFound},
	{lineage.ErrSnapshotNotFound, pb.ErrorCode_ERROR_SNAPSHOT_NOT_FOUND, codes.NotFound},
	{lineage.ErrTooLarge, pb.ErrorCode_ERROR_VALUE_TOO_LARGE, codes.InvalidArgument},
	{store.ErrTooLarge, pb.ErrorCode_ERROR_VALUE_TOO_LARGE, codes.InvalidArgument},
	{store.ErrFull, pb.ErrorCode_ERROR_STORE_FULL, codes.ResourceExhausted},
	{store.ErrUnavailable, pb.ErrorCode_ERROR_STORE_UNAVAILABLE, codes.Unavailable},
	{store.ErrClosed, pb.ErrorCode_ERROR_STORE_UNAVAILABLE, codes.Unavailable},
	{context.DeadlineExceeded, pb.ErrorCode_ERROR_STORE_UNAVAILABLE, codes.DeadlineExceeded},
	{context.Canceled, pb.ErrorCode_ERROR_STORE_UNAVAILABLE, codes.Canceled},
}

func classify(err error) (pb.ErrorCode, codes.Code) {
	var wire *wireError
	if errors.As(err, &wire) {
		return wire.code, wire.status
	}
	for _, f := range failures {
		if errors.Is(err, f.is) {
			return f.code, f.status
		}
	}
	return pb.ErrorCode_ERROR_INTERNAL, codes.Internal
}

// wireError is an error that the bridge itself found.
type wireError struct {
	code    pb.ErrorCode
	status  codes.Code
	message string
}

func (e *wireError) Error() string { return e.message }

func tooLarge(message string) error {
	return &wireError{pb.ErrorCode_ERROR_VALUE_TOO_LARGE, codes.InvalidArgument, message}
}

func invalid(message string) error {
	return &wireError{pb.ErrorCode_ERROR_INVALID_ARGUMENT, codes.InvalidArgument, message}
}

// callError is the status of a failed call, unary or of a stream that has not begun, with the error code in the
// trailer.
func callError(ctx context.Context, err error) error {
	code, statusCode := classify(err)
	// SetTrailer fails only outside of a call.
	_ = grpc.SetTrailer(ctx, metadata.Pairs(errorTrailer, code.String()))
	return status.Error(statusCode, err.Error())
}

// panicked makes an error of what was recovered, and logs it with the stack.
func (s *Service) panicked(p any, during string) error {
	s.opt.Log.Error().Interface("panic", p).Bytes("stack", debug.Stack()).Msg(during + " caused a panic")
	return fmt.Errorf("internal error: %v", p)
}

// Recover turns a panic in a call into an error of this call: other sessions go on. Session streams do the same
// for each frame.
func (s *Service) Recover(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = callError(ctx, s.panicked(p, info.FullMethod))
		}
	}()
	return next(ctx, req)
}

// retryable says that the client should attach again rather than give up.
func retryable(code pb.ErrorCode) bool {
	return code == pb.ErrorCode_ERROR_STORE_UNAVAILABLE || code == pb.ErrorCode_ERROR_SERVER_FULL
}
