package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flinkndb/flinkndb/server/lineage"
)

// Metrics are what the bridge measures.
type Metrics struct {
	Streams         prometheus.Gauge
	Inflight        prometheus.Gauge
	Frames          *prometheus.HistogramVec // by kind, seconds
	RowsIn          prometheus.Counter
	BytesIn         prometheus.Counter
	RowsOut         prometheus.Counter
	SnapshotSeconds prometheus.Histogram
	Errors          *prometheus.CounterVec // by code
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	buckets := prometheus.ExponentialBuckets(20e-6, 2, 20) // 20 µs to 10 s
	m := &Metrics{
		Streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "flinkndb_streams", Help: "Session streams that are attached."}),
		Inflight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "flinkndb_inflight_bytes", Help: "Memory of large frames that are worked on, bounded by --max-inflight-bytes."}),
		Frames: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "flinkndb_frame_seconds", Help: "Time to work through a frame, by kind.", Buckets: buckets}, []string{"kind"}),
		RowsIn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flinkndb_written_rows_total", Help: "Entries of write frames."}),
		BytesIn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flinkndb_written_bytes_total", Help: "Key and value bytes of write frames."}),
		RowsOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flinkndb_read_rows_total", Help: "Rows sent in answers to reads and scans."}),
		SnapshotSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "flinkndb_snapshot_seconds", Help: "Time from a snapshot request to its durability.", Buckets: buckets}),
		Errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flinkndb_errors_total", Help: "Errors reported on session streams, by code."}, []string{"code"}),
	}
	r.MustRegister(m.Streams, m.Inflight, m.Frames, m.RowsIn, m.BytesIn, m.RowsOut, m.SnapshotSeconds, m.Errors)
	return m
}

// RegisterTotals registers metrics of what the lineage layer knows.
func RegisterTotals(r prometheus.Registerer, l *lineage.Lineage) {
	gauge := func(name, help string, value func(lineage.Totals) uint64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return float64(value(l.Totals())) }))
	}
	gauge("flinkndb_row_spaces", "Row spaces.", func(t lineage.Totals) uint64 { return t.Spaces })
	gauge("flinkndb_sessions", "Live sessions.", func(t lineage.Totals) uint64 { return t.Sessions })
	gauge("flinkndb_snapshots", "Snapshots.", func(t lineage.Totals) uint64 { return t.Snapshots })
	gauge("flinkndb_layered_key_groups", "Key groups of live sessions that read through to the row spaces that they were forked from.",
		func(t lineage.Totals) uint64 { return t.LayeredGroups })
	gauge("flinkndb_row_cache_rows", "Rows in the row cache.", func(t lineage.Totals) uint64 { return t.CachedRows })
	gauge("flinkndb_row_cache_bytes", "What they take.", func(t lineage.Totals) uint64 { return t.CachedBytes })
	counter := func(name, help string, value func(lineage.Totals) uint64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
			func() float64 { return float64(value(l.Totals())) }))
	}
	counter("flinkndb_flattened_rows_total", "Rows copied to make forks independent.", func(t lineage.Totals) uint64 { return t.FlattenedRows })
	counter("flinkndb_flattened_bytes_total", "Key and value bytes of these rows.", func(t lineage.Totals) uint64 { return t.FlattenedBytes })
	counter("flinkndb_row_cache_hits_total", "Rows read from the row cache.", func(t lineage.Totals) uint64 { return t.CacheHits })
	counter("flinkndb_row_cache_misses_total", "Rows read from the store because the row cache did not have them.", func(t lineage.Totals) uint64 { return t.CacheMisses })
}
