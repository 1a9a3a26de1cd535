package cmd

import (
	"context"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
	"github.com/flinkndb/flinkndb/server/store/ndb"
	"github.com/flinkndb/flinkndb/server/store/pebble"
)

type storeOptions struct {
	log        zerolog.Logger
	cacheBytes int64
	metrics    prometheus.Registerer
}

// openStore opens what --store names. New kinds of store are added here.
func openStore(ctx context.Context, value string, opt storeOptions) (store.Store, error) {
	kind, rest, _ := strings.Cut(value, ":")
	switch {
	case kind == "memory" && rest == "":
		return memory.New(), nil
	case kind == "pebble" && rest != "":
		return pebble.Open(rest, pebble.Options{CacheBytes: opt.cacheBytes, Log: opt.log})
	case kind == "mysql":
		return ndb.Open(ctx, value, opt.log, opt.metrics)
	default:
		return nil, usageErrorf("--store: found %q, allowed are pebble:DIR, memory: and mysql://USER@HOST:PORT/DATABASE?engine=ndb", value)
	}
}
