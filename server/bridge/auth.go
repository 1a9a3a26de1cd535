package bridge

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
)

// TokenAuth demands "authorization: Bearer <token>" of every call.
type TokenAuth struct{ digest [sha256.Size]byte }

// NewTokenAuth returns a check for one token.
func NewTokenAuth(token string) *TokenAuth {
	return &TokenAuth{sha256.Sum256([]byte(token))}
}

// Unary checks unary calls.
func (a *TokenAuth) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := a.check(ctx); err != nil {
		// SetTrailer fails only outside of a call.
		_ = grpc.SetTrailer(ctx, unauthenticatedTrailer())
		return nil, err
	}
	return next(ctx, req)
}

// Stream checks streaming calls.
func (a *TokenAuth) Stream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := a.check(stream.Context()); err != nil {
		stream.SetTrailer(unauthenticatedTrailer())
		return err
	}
	return next(srv, stream)
}

func unauthenticatedTrailer() metadata.MD {
	return metadata.Pairs(errorTrailer, pb.ErrorCode_ERROR_UNAUTHENTICATED.String())
}

func (a *TokenAuth) check(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) == 0 {
		return status.Error(codes.Unauthenticated, "no token: set state.backend.ndb.token-file (or --token-file) to the server's token")
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	digest := sha256.Sum256([]byte(token))
	if !ok || subtle.ConstantTimeCompare(digest[:], a.digest[:]) != 1 {
		return status.Error(codes.Unauthenticated, "wrong token: state.backend.ndb.token-file (or --token-file) does not hold the server's token")
	}
	return nil
}
