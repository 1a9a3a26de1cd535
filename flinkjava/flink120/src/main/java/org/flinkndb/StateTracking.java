package org.flinkndb;

import org.apache.flink.runtime.state.metrics.LatencyTrackingStateConfig;

/** What Flink 1.20 measures of state accesses: latency. */
final class StateTracking {
    private final LatencyTrackingStateConfig latency;

    StateTracking(LatencyTrackingStateConfig latency) {
        this.latency = latency;
    }

    LatencyTrackingStateConfig latency() {
        return latency;
    }
}
