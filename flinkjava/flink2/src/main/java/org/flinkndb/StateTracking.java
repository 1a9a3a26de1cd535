package org.flinkndb;

import org.apache.flink.runtime.state.metrics.LatencyTrackingStateConfig;
import org.apache.flink.runtime.state.metrics.SizeTrackingStateConfig;

/** What Flink 2.x measures of state accesses: latency and size. */
final class StateTracking {
    private final LatencyTrackingStateConfig latency;
    private final SizeTrackingStateConfig size;

    StateTracking(LatencyTrackingStateConfig latency, SizeTrackingStateConfig size) {
        this.latency = latency;
        this.size = size;
    }

    LatencyTrackingStateConfig latency() {
        return latency;
    }

    SizeTrackingStateConfig size() {
        return size;
    }
}
