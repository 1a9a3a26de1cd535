package cmd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/flinkndb/flinkndb/proto/flinkndb/v1"
)

// clientFlags say how an administrator's command reaches a running server.
type clientFlags struct {
	address   string
	tokenFile string
	tlsCA     string
	tlsCert   string
	tlsKey    string
	timeout   time.Duration
	output    string
}

func (f *clientFlags) register(c *cobra.Command) {
	p := c.PersistentFlags()
	p.StringVar(&f.address, "address", defaultUnixListen, "server: unix:///path or host:port")
	p.StringVar(&f.tokenFile, "token-file", "", "file that holds the server's token")
	p.StringVar(&f.tlsCA, "tls-ca", "", "certificate authority of the server (turns TLS on)")
	p.StringVar(&f.tlsCert, "tls-cert", "", "client certificate")
	p.StringVar(&f.tlsKey, "tls-key", "", "key of the client certificate")
	p.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for an answer")
	p.StringVarP(&f.output, "output", "o", "table", "table or json")
}

// withAdmin connects, runs fn, and disconnects.
func (f *clientFlags) withAdmin(ctx context.Context, fn func(context.Context, *grpc.ClientConn, pb.AdminServiceClient) error) error {
	if f.output != "table" && f.output != "json" {
		return usageErrorf("--output: found %q, allowed are table and json", f.output)
	}
	opts, err := f.dialOptions()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(dialTarget(f.address), opts...)
	if err != nil {
		return fmt.Errorf("--address %q: %w", f.address, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := fn(ctx, conn, pb.NewAdminServiceClient(conn)); err != nil {
		return fmt.Errorf("server at %s: %w", f.address, err)
	}
	return nil
}

func dialTarget(address string) string {
	if strings.HasPrefix(address, "unix:") {
		return address
	}
	return "passthrough:///" + strings.TrimPrefix(address, "tcp://")
}

func (f *clientFlags) dialOptions() ([]grpc.DialOption, error) {
	transport := insecure.NewCredentials()
	if f.tlsCA != "" {
		config, err := clientTLS(f.tlsCA, f.tlsCert, f.tlsKey)
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if f.tokenFile == "" {
		return opts, nil
	}
	token, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	return append(opts, grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(string(token))))), nil
}

// clientTLS trusts one authority and, where given, shows a client certificate.
func clientTLS(caFile, certFile, keyFile string) (*tls.Config, error) {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("--tls-ca %s: holds no PEM certificate", caFile)
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if certFile == "" {
		return config, nil
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	config.Certificates = []tls.Certificate{cert}
	return config, nil
}

// bearer sends a token with every call. It is not bound to TLS because Unix sockets and loopback
// are allowed without; what listens elsewhere refuses plain connections itself.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearer) RequireTransportSecurity() bool { return false }
