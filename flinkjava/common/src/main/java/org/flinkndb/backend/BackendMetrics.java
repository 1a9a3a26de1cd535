package org.flinkndb.backend;

import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Histogram;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.runtime.metrics.DescriptiveStatisticsHistogram;
import org.flinkndb.cache.FlushListener;
import org.flinkndb.client.SessionListener;

/**
 * Metrics of one backend, in the group {@code flinkndb} of its operator: rows and bytes each way,
 * round trips, reconnects, how long barriers take, and what the caches hold.
 */
public final class BackendMetrics implements SessionListener, FlushListener {
    private static final int WINDOW = 1024;

    private final MetricGroup group;
    private final Counter rowsOut;
    private final Counter bytesOut;
    private final Counter rowsIn;
    private final Counter bytesIn;
    private final Counter reconnects;
    private final Counter roundTrips;
    private final Histogram roundTripNanos;
    private final Histogram flushNanos;
    private final Histogram snapshotNanos;

    public BackendMetrics(MetricGroup operatorGroup) {
        group = operatorGroup.addGroup("flinkndb");
        rowsOut = group.counter("rowsOut");
        bytesOut = group.counter("bytesOut");
        rowsIn = group.counter("rowsIn");
        bytesIn = group.counter("bytesIn");
        reconnects = group.counter("reconnects");
        roundTrips = group.counter("roundTrips");
        roundTripNanos =
                group.histogram("roundTripNanos", new DescriptiveStatisticsHistogram(WINDOW));
        flushNanos = group.histogram("flushNanos", new DescriptiveStatisticsHistogram(WINDOW));
        snapshotNanos =
                group.histogram("snapshotNanos", new DescriptiveStatisticsHistogram(WINDOW));
    }

    /** Adds gauges of a backend's caches. Read by other threads: the numbers may be a little old. */
    public void watch(BackendCore<?> core) {
        group.gauge("cacheBytes", (Gauge<Long>) () -> core.cacheAccount().usedBytes());
        group.gauge("cacheLimitBytes", (Gauge<Long>) () -> core.cacheAccount().limit());
        group.gauge("cacheHits", (Gauge<Long>) () -> core.cacheAccount().hits());
        group.gauge("cacheMisses", (Gauge<Long>) () -> core.cacheAccount().misses());
    }

    @Override
    public void roundTrip(long nanos) {
        roundTrips.inc();
        roundTripNanos.update(nanos);
    }

    @Override
    public void flushed(long nanos) {
        flushNanos.update(nanos);
    }

    @Override
    public void snapshotTaken(long nanos) {
        snapshotNanos.update(nanos);
    }

    @Override
    public void sent(int rows, long bytes) {
        rowsOut.inc(rows);
        bytesOut.inc(bytes);
    }

    @Override
    public void received(int rows, long bytes) {
        rowsIn.inc(rows);
        bytesIn.inc(bytes);
    }

    @Override
    public void reconnecting() {
        reconnects.inc();
    }
}
