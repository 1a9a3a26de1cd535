package org.flinkndb;

import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.runtime.query.TaskKvStateRegistry;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.InternalKeyContext;
import org.apache.flink.runtime.state.StreamCompressionDecorator;
import org.flinkndb.backend.BackendCore;

/** What of a keyed state backend differs between Flink lines; this is the one for Flink 2.x. */
abstract class FlinkKeyedStateBackend<K> extends AbstractKeyedStateBackend<K> {
    FlinkKeyedStateBackend(
            TaskKvStateRegistry kvStateRegistry,
            BackendCore<K> core,
            StateTracking tracking,
            CloseableRegistry closeables,
            StreamCompressionDecorator compression,
            InternalKeyContext<K> keyContext) {
        super(
                kvStateRegistry,
                core.keySerializer(),
                core.userClassLoader(),
                core.executionConfig(),
                core.ttlTimeProvider(),
                tracking.latency(),
                tracking.size(),
                closeables,
                compression,
                keyContext);
    }

    @Override
    public final String getBackendTypeIdentifier() {
        return "ndb";
    }
}
