package org.flinkndb;

import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.runtime.state.AbstractStateBackend;

/** What of a state backend differs between Flink lines; this is the one for Flink 1.20. */
abstract class FlinkStateBackend extends AbstractStateBackend {
    private static final long serialVersionUID = 1L;

    /** Takes over what is measured from another backend and a configuration on top. */
    final void configureTracking(FlinkStateBackend original, ReadableConfig config) {
        latencyTrackingConfigBuilder = original.latencyTrackingConfigBuilder.configure(config);
    }

    final StateTracking tracking(MetricGroup group) {
        return new StateTracking(latencyTrackingConfigBuilder.setMetricGroup(group).build());
    }
}
