package cmd

import (
	"os"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/bridge"
)

// What the server takes beside what flags say.
const (
	// embeddedStoreBytes is for the embedded store's memtables and what it compacts.
	embeddedStoreBytes = 512 << 20
	// programBytes is for the program itself, the filters of new rows and what the sweeper remembers.
	programBytes = 384 << 20
)

// memoryBound is what the server takes at most: store, large frames, and what each session may hold. State in
// memory: is not part of it.
func (f *serveFlags) memoryBound() int64 {
	bound := programBytes + f.maxInflightBytes + int64(f.maxSessions)*bridge.SessionBytes
	if strings.HasPrefix(f.store, "pebble:") {
		bound += embeddedStoreBytes + f.cacheBytes
	}
	return bound + f.rowCacheBytes()
}

// sharedStore says whether several servers can work on the store at the same time.
func (f *serveFlags) sharedStore() bool { return strings.HasPrefix(f.store, "mysql:") }

// rowCacheBytes is for the cache of rows in front of a database. The embedded store has a cache of its own.
func (f *serveFlags) rowCacheBytes() int64 {
	if f.sharedStore() {
		return f.cacheBytes
	}
	return 0
}

// boundMemory has the garbage collector work harder near the bound, rather than let garbage grow beyond it. An
// administrator may choose another one (GOMEMLIMIT).
func (f *serveFlags) boundMemory(log zerolog.Logger, r prometheus.Registerer) {
	bound := f.memoryBound()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flinkndb_memory_bound_bytes", Help: "What the server takes at most, by its flags."}, func() float64 { return float64(bound) }))
	if f.store == "memory:" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetMemoryLimit(bound)
	log.Info().Int64("mib", bound>>20).Msg("memory is bounded (--cache-bytes, --max-inflight-bytes, --max-sessions)")
}
