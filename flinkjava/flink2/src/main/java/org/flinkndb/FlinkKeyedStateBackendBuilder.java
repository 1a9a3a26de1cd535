package org.flinkndb;

import org.apache.flink.runtime.state.AbstractKeyedStateBackendBuilder;
import org.apache.flink.runtime.state.StateBackend.KeyedStateBackendParameters;
import org.apache.flink.runtime.state.StreamCompressionDecorator;

/** What of a backend's builder differs between Flink lines; this is the one for Flink 2.x. */
abstract class FlinkKeyedStateBackendBuilder<K> extends AbstractKeyedStateBackendBuilder<K> {
    FlinkKeyedStateBackendBuilder(
            KeyedStateBackendParameters<K> parameters,
            StateTracking tracking,
            StreamCompressionDecorator compression) {
        super(
                parameters.getKvStateRegistry(),
                parameters.getKeySerializer(),
                parameters.getEnv().getUserCodeClassLoader().asClassLoader(),
                parameters.getNumberOfKeyGroups(),
                parameters.getKeyGroupRange(),
                parameters.getEnv().getExecutionConfig(),
                parameters.getTtlTimeProvider(),
                tracking.latency(),
                tracking.size(),
                parameters.getStateHandles(),
                compression,
                parameters.getCancelStreamRegistry());
    }
}
