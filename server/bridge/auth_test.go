package bridge_test

import (
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flinkndb/flinkndb/server/bridge"
)

// TestToken refuses calls and streams without the server's token, and lets those with it in.
func TestToken(t *testing.T) {
	auth := bridge.NewTokenAuth("right-token")
	client := dial(t, startServer(t, bridge.Options{}, grpc.UnaryInterceptor(auth.Unary), grpc.StreamInterceptor(auth.Stream)))
	for header, want := range map[string]codes.Code{
		"":                   codes.Unauthenticated,
		"Bearer wrong-token": codes.Unauthenticated,
		"right-token":        codes.Unauthenticated, // not a bearer token
		"Bearer right-token": codes.OK,
	} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		var trailer metadata.MD
		_, err := client.OpenSession(ctx, openRequest("a"), grpc.Trailer(&trailer))
		if status.Code(err) != want {
			t.Errorf("call with %q: %v", header, err)
		}
		if want != codes.OK && trailer.Get("flinkndb-error")[0] != "ERROR_UNAUTHENTICATED" {
			t.Errorf("trailer: %v", trailer)
		}
		stream, err := client.Session(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); (status.Code(err) == codes.Unauthenticated) != (want == codes.Unauthenticated) {
			t.Errorf("stream with %q: %v", header, err)
		}
	}
}
