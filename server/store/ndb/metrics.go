package ndb

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts what an operator of the store wants to see.
type metrics struct {
	retries    *prometheus.CounterVec // by operation and reason
	failures   *prometheus.CounterVec // by operation
	statements *prometheus.CounterVec // by kind
	rows       *prometheus.CounterVec // by kind
	updates    prometheus.Histogram   // seconds of Update, with its retries
	durable    prometheus.Histogram   // seconds from commit to proven durability
	outcomes   *prometheus.CounterVec // commits whose outcome had to be looked up
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "flinkndb", Subsystem: "mysql", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "flinkndb", Subsystem: "mysql", Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)})
	}
	m := &metrics{
		retries:    counter("retries_total", "Temporary failures that were retried, by operation and reason (conflict, overload, host_down).", "operation", "reason"),
		failures:   counter("failures_total", "Operations that failed for good, by operation.", "operation"),
		statements: counter("statements_total", "SQL statements on rows and meta records, by kind.", "kind"),
		rows:       counter("rows_total", "Rows that these statements read, wrote or removed, by kind.", "kind"),
		updates:    histogram("update_seconds", "Duration of a transaction from its start to its commit."),
		durable:    histogram("durable_seconds", "Time from a commit to the proof that it is on disk (durability=disk)."),
		outcomes:   counter("lost_commits_total", "Commits whose answer was lost, by what the look-up found (done, undone, unknown).", "outcome"),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.retries, m.failures, m.statements, m.rows, m.updates, m.durable, m.outcomes} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) retried(op string, c class) { m.retries.WithLabelValues(op, c.String()).Inc() }
func (m *metrics) failed(op string)           { m.failures.WithLabelValues(op).Inc() }
func (m *metrics) statement(kind string, rows int) {
	m.statements.WithLabelValues(kind).Inc()
	m.rows.WithLabelValues(kind).Add(float64(rows))
}
func (m *metrics) updated(since time.Time) { m.updates.Observe(time.Since(since).Seconds()) }
