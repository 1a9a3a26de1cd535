package cmd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	defaultUnixListen = "unix:///tmp/flinkndb.sock"
	defaultTCPListen  = "tcp://127.0.0.1:7480"
	defaultHTTP       = "127.0.0.1:7481"
	// socketMode lets only the server's user connect: a Unix socket needs no token.
	socketMode = 0o600
)

// endpoint is one value of --listen.
type endpoint struct {
	network string // unix or tcp
	address string // path or host:port
}

func (e endpoint) String() string { return e.network + "://" + e.address }

func parseEndpoint(value string) (endpoint, error) {
	network, address, ok := strings.Cut(value, "://")
	switch {
	case ok && network == "unix" && strings.HasPrefix(address, "/"):
		return endpoint{"unix", address}, nil
	case ok && network == "tcp":
		if _, _, err := net.SplitHostPort(address); err == nil {
			return endpoint{"tcp", address}, nil
		}
	}
	return endpoint{}, usageErrorf("--listen: found %q, allowed are unix:///absolute/path and tcp://host:port", value)
}

// exposed says whether other machines can reach the endpoint.
func (e endpoint) exposed() bool {
	if e.network == "unix" {
		return false
	}
	host, _, _ := net.SplitHostPort(e.address)
	if host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// open starts to listen. A socket file that a dead server left behind is replaced, one that
// somebody listens on is not.
func (e endpoint) open(ctx context.Context) (net.Listener, error) {
	if e.network == "unix" {
		if err := removeStaleSocket(ctx, e.address); err != nil {
			return nil, fmt.Errorf("--listen %s: %w", e, err)
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, e.network, e.address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", e, err)
	}
	if e.network == "unix" {
		if err := os.Chmod(e.address, socketMode); err != nil {
			return nil, errors.Join(fmt.Errorf("--listen %s: %w", e, err), listener.Close())
		}
	}
	return listener, nil
}

func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("the file exists and is no socket")
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
		return errors.New("another server listens here")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("cannot tell whether another server listens here: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of an earlier server: %w", err)
	}
	return nil
}

// serverTLS is the TLS configuration of TCP endpoints; nil without --tls-cert.
func serverTLS(certFile, keyFile, clientCAFile string) (*tls.Config, error) {
	if certFile == "" {
		if keyFile != "" || clientCAFile != "" {
			return nil, usageErrorf("--tls-key and --tls-client-ca need --tls-cert")
		}
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if clientCAFile == "" {
		return config, nil
	}
	ca, err := os.ReadFile(clientCAFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-client-ca: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("--tls-client-ca %s: holds no PEM certificate", clientCAFile)
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}
