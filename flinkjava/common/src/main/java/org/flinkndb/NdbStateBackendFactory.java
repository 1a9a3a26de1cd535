package org.flinkndb;

import org.apache.flink.configuration.IllegalConfigurationException;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.runtime.state.StateBackendFactory;

/**
 * What {@code state.backend.type: org.flinkndb.NdbStateBackendFactory} names. Flink calls it on the
 * JobManager and once for each keyed operator, so it only reads the configuration.
 */
public final class NdbStateBackendFactory implements StateBackendFactory<NdbStateBackend> {
    @Override
    public NdbStateBackend createFromConfig(ReadableConfig config, ClassLoader classLoader)
            throws IllegalConfigurationException {
        return new NdbStateBackend().configure(config, classLoader);
    }
}
