package cmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/flinkndb/flinkndb/server/bridge"
	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
)

const (
	// maxStreams bounds the streams of one connection. The shim has a connection for each session.
	maxStreams = 64
	// maxHeaderBytes bounds the headers of a call, which hold a token at most.
	maxHeaderBytes = 16 << 10
	// handshakeTimeout is how long a new connection may take until it speaks gRPC, idleTimeout how long it
	// may be without a call.
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 2 * time.Minute
	// drainTimeout is how long SIGTERM waits for frames that are being worked on.
	drainTimeout = 10 * time.Second
)

// serveFlags are the settings of `flinkndb serve`.
type serveFlags struct {
	listen             []string
	store              string
	http               string
	tlsCert            string
	tlsKey             string
	tlsClientCA        string
	tokenFile          string
	insecure           bool
	lease              time.Duration
	abandonedRetention time.Duration
	sweepInterval      time.Duration
	flattenRate        int64
	flattenDelay       time.Duration
	maxValueBytes      int
	maxInflightBytes   int64
	maxSessions        int
	cacheBytes         int64
	logLevel           string
	logFormat          string
}

func newServeCommand() *cobra.Command {
	_, c := newServeFlags()
	return c
}

func newServeFlags() (*serveFlags, *cobra.Command) {
	f := &serveFlags{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the state server",
		Long:  "Run the state server. Every flag can be set in the environment too: --max-value-bytes as FLINKNDB_MAX_VALUE_BYTES.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.ErrOrStderr())
		},
	}
	p := c.Flags()
	p.StringSliceVar(&f.listen, "listen", []string{defaultUnixListen, defaultTCPListen}, "where clients connect: unix:///path or tcp://host:port; repeatable")
	p.StringVar(&f.store, "store", "pebble:./flinkndb-data", "where state is kept: pebble:DIR, memory:, or mysql://user@host:port/database?engine=ndb")
	p.StringVar(&f.http, "http", defaultHTTP, "host:port of /healthz, /readyz and /metrics; empty = none")
	p.StringVar(&f.tlsCert, "tls-cert", "", "certificate of the TCP endpoints (turns TLS on)")
	p.StringVar(&f.tlsKey, "tls-key", "", "key of the certificate")
	p.StringVar(&f.tlsClientCA, "tls-client-ca", "", "certificate authority that client certificates must be signed by")
	p.StringVar(&f.tokenFile, "token-file", "", "file with the token that clients must show on every endpoint")
	p.BoolVar(&f.insecure, "insecure", false, "allow endpoints that other machines reach without TLS and client credentials")
	p.DurationVar(&f.lease, "session-lease", time.Minute, "how long a session lives without a connection, unless it asks for another time")
	p.DurationVar(&f.abandonedRetention, "abandoned-retention", 24*time.Hour, "how long to keep snapshots that never became a completed checkpoint")
	p.DurationVar(&f.sweepInterval, "sweep-interval", 10*time.Second, "time between passes of the garbage collector")
	p.Int64Var(&f.flattenRate, "flatten-rate", 4<<20, "bytes a second at which forks are made independent of what they were forked from, all together; 0 = never")
	p.DurationVar(&f.flattenDelay, "flatten-delay", 10*time.Minute, "how old a fork must be for that; until then it adds only what it changes")
	p.IntVar(&f.maxValueBytes, "max-value-bytes", 64<<20, "largest value of one row")
	p.Int64Var(&f.maxInflightBytes, "max-inflight-bytes", bridge.DefaultMaxInflightBytes, "memory of the large frames that are worked on, of all sessions together; above it they wait in turn")
	p.IntVar(&f.maxSessions, "max-sessions", bridge.DefaultMaxSessions, "how many sessions may be attached at once")
	p.Int64Var(&f.cacheBytes, "cache-bytes", 256<<20, "cache of what the store holds: blocks of the embedded store, rows of a database")
	p.StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	p.StringVar(&f.logFormat, "log-format", "console", "console or json")
	return f, c
}

func (f *serveFlags) run(ctx context.Context, stderr io.Writer) error {
	log, err := f.logger(stderr)
	if err != nil {
		return err
	}
	if err := f.validate(); err != nil {
		return err
	}
	endpoints, err := f.endpoints()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	st, err := openStore(ctx, f.store, storeOptions{log: log, cacheBytes: f.cacheBytes, metrics: registry})
	if err != nil {
		return err
	}
	f.boundMemory(log, registry)
	log.Info().Str("store", st.Name()).Str("version", Version()).Msg("store opened")
	err = f.serve(ctx, log, st, registry, endpoints)
	return errors.Join(err, st.Close())
}

func (f *serveFlags) serve(ctx context.Context, log zerolog.Logger, st store.Store, registry *prometheus.Registry, endpoints []endpoint) error {
	id, err := newServerID()
	if err != nil {
		return err
	}
	l, err := lineage.New(ctx, st, lineage.Options{
		Log: log, ServerID: id, Exclusive: !f.sharedStore(), Lease: f.lease, AbandonedRetention: f.abandonedRetention, SweepInterval: f.sweepInterval,
		FlattenRate: f.flattenRate, FlattenDelay: f.flattenDelay,
		MaxValueBytes: f.maxValueBytes, RowCacheBytes: f.rowCacheBytes(),
	})
	if err != nil {
		return err
	}
	bridge.RegisterTotals(registry, l)
	service := bridge.New(l, bridge.Options{
		ServerID: id, Version: Version(), MaxSessions: f.maxSessions, MaxInflightBytes: f.maxInflightBytes, Log: log, Metrics: bridge.NewMetrics(registry),
	})
	servers, err := f.grpcServers(service, endpoints)
	if err != nil {
		return err
	}
	limit, err := connectionLimit(f.maxSessions)
	if err != nil {
		return err
	}
	running := &listeners{log: log, connections: newConnections(limit, log, registry)}
	sweepCtx, stopSweeper := context.WithCancel(ctx)
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		l.Run(sweepCtx)
	}()
	health := newHealth(f.http, registry, l)
	err = running.start(ctx, servers, health)
	if err == nil {
		log.Info().Msg("ready")
		err = running.wait(ctx)
		log.Info().Msg("draining")
	}
	health.notReady()
	running.stop()
	stopSweeper()
	<-swept
	return errors.Join(err, health.stop())
}

func (f *serveFlags) logger(w io.Writer) (zerolog.Logger, error) {
	level, err := zerolog.ParseLevel(f.logLevel)
	if err != nil || level == zerolog.NoLevel {
		return zerolog.Logger{}, usageErrorf("--log-level: found %q, allowed are trace, debug, info, warn and error", f.logLevel)
	}
	switch f.logFormat {
	case "json":
	case "console":
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: time.RFC3339, NoColor: true}
	default:
		return zerolog.Logger{}, usageErrorf("--log-format: found %q, allowed are console and json", f.logFormat)
	}
	return zerolog.New(w).Level(level).With().Timestamp().Logger(), nil
}

// validate checks the numbers.
func (f *serveFlags) validate() error {
	for _, n := range []struct {
		flag             string
		found, min, most int64
	}{
		{"max-value-bytes", int64(f.maxValueBytes), 1 << 10, 1 << 30},
		{"max-inflight-bytes", f.maxInflightBytes, 64 << 20, 1 << 40},
		{"max-sessions", int64(f.maxSessions), 1, 1 << 20},
		{"cache-bytes", f.cacheBytes, 1 << 20, 1 << 40},
		{"session-lease", int64(f.lease), int64(time.Second), int64(24 * time.Hour)},
		{"abandoned-retention", int64(f.abandonedRetention), int64(time.Second), int64(10 * 365 * 24 * time.Hour)},
		{"flatten-rate", f.flattenRate, 0, 1 << 40},
		{"flatten-delay", int64(f.flattenDelay), 0, int64(365 * 24 * time.Hour)},
		{"sweep-interval", int64(f.sweepInterval), int64(10 * time.Millisecond), int64(24 * time.Hour)},
	} {
		if n.found >= n.min && n.found <= n.most {
			continue
		}
		if strings.HasSuffix(n.flag, "-bytes") || strings.HasSuffix(n.flag, "-rate") || strings.HasPrefix(n.flag, "max-") {
			return usageErrorf("--%s: found %d, allowed are %d to %d", n.flag, n.found, n.min, n.most)
		}
		return usageErrorf("--%s: found %s, allowed are %s to %s", n.flag, time.Duration(n.found), time.Duration(n.min), time.Duration(n.most))
	}
	// A single value must fit, with what working on it takes.
	if least := 4 * int64(f.maxValueBytes); f.maxInflightBytes < least {
		return usageErrorf("--max-inflight-bytes: found %d, at least %d are needed, four times --max-value-bytes", f.maxInflightBytes, least)
	}
	return nil
}

// endpoints parses --listen and refuses what would expose state to the network.
func (f *serveFlags) endpoints() ([]endpoint, error) {
	var endpoints []endpoint
	for _, value := range f.listen {
		e, err := parseEndpoint(value)
		if err != nil {
			return nil, err
		}
		authenticated := f.tlsCert != "" && (f.tlsClientCA != "" || f.tokenFile != "")
		if e.exposed() && !authenticated && !f.insecure {
			return nil, usageErrorf("--listen %s: other machines reach it, so it needs --tls-cert and either --tls-client-ca or --token-file (or --insecure, at your own risk)", e)
		}
		endpoints = append(endpoints, e)
	}
	if len(endpoints) == 0 {
		return nil, usageErrorf("--listen: at least one endpoint is needed")
	}
	return endpoints, nil
}

// endpointServer is the gRPC server of one endpoint: Unix sockets speak plain, TCP as configured.
type endpointServer struct {
	endpoint endpoint
	server   *grpc.Server
}

func (f *serveFlags) grpcServers(service *bridge.Service, endpoints []endpoint) ([]endpointServer, error) {
	common := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(service.MaxReceiveBytes()),
		grpc.MaxSendMsgSize(service.MaxSendBytes()),
		grpc.ChainUnaryInterceptor(service.Recover),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.InitialWindowSize(bridge.WindowBytes),
		grpc.InitialConnWindowSize(bridge.WindowBytes),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: idleTimeout}),
	}
	if f.tokenFile != "" {
		auth, err := readToken(f.tokenFile)
		if err != nil {
			return nil, err
		}
		common = append(common, grpc.ChainUnaryInterceptor(auth.Unary), grpc.StreamInterceptor(auth.Stream))
	}
	tlsConfig, err := serverTLS(f.tlsCert, f.tlsKey, f.tlsClientCA)
	if err != nil {
		return nil, err
	}
	var servers []endpointServer
	for _, e := range endpoints {
		options := common
		if e.network == "tcp" && tlsConfig != nil {
			options = append(append([]grpc.ServerOption(nil), common...), grpc.Creds(credentials.NewTLS(tlsConfig)))
		}
		server := grpc.NewServer(options...)
		service.Register(server)
		servers = append(servers, endpointServer{e, server})
	}
	return servers, nil
}

func readToken(file string) (*bridge.TokenAuth, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if len(token) < 16 {
		return nil, usageErrorf("--token-file %s: the token has %d characters, at least 16 are needed", file, len(token))
	}
	return bridge.NewTokenAuth(token), nil
}

func newServerID() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host: %w", err)
	}
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", fmt.Errorf("random number: %w", err)
	}
	return host + "-" + hex.EncodeToString(random[:]), nil
}

// listeners runs the gRPC servers.
type listeners struct {
	log         zerolog.Logger
	connections *connections
	servers     []endpointServer
	failed      chan error
}

func (l *listeners) start(ctx context.Context, servers []endpointServer, h *health) error {
	l.failed = make(chan error, len(servers))
	for _, s := range servers {
		listener, err := s.endpoint.open(ctx)
		if err != nil {
			return err
		}
		l.servers = append(l.servers, s)
		l.log.Info().Str("endpoint", s.endpoint.network+"://"+listener.Addr().String()).Msg("listening")
		go func(s endpointServer, listener net.Listener) {
			if err := s.server.Serve(listener); err != nil {
				l.failed <- fmt.Errorf("serve %s: %w", s.endpoint, err)
			}
		}(s, l.connections.bound(listener))
	}
	return h.start(ctx, l.log)
}

// wait returns when the context ends or a listener fails.
func (l *listeners) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.failed:
		return err
	}
}

// stop lets running calls finish for a while. Session streams never end by themselves: they are cut,
// and their clients attach again elsewhere or later.
func (l *listeners) stop() {
	for _, s := range l.servers {
		done := make(chan struct{})
		go func() {
			s.server.GracefulStop()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(streamGrace):
			s.server.Stop()
			<-done
		}
	}
}

// streamGrace is how long stop waits before it cuts streams.
const streamGrace = 500 * time.Millisecond

// health is the HTTP side: liveness, readiness, metrics.
type health struct {
	server *http.Server
	state  *readiness
}

func (h *health) start(ctx context.Context, log zerolog.Logger) error {
	if h.server == nil {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", h.server.Addr)
	if err != nil {
		return fmt.Errorf("--http %s: %w", h.server.Addr, err)
	}
	log.Info().Str("endpoint", "http://"+listener.Addr().String()).Msg("listening")
	h.state.set(true)
	go func() {
		if err := h.server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("HTTP endpoint failed")
		}
	}()
	return nil
}

func (h *health) notReady() { h.state.set(false) }

func (h *health) stop() error {
	if h.server == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	return h.server.Shutdown(ctx)
}
