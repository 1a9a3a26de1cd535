package org.apache.flink.state.rocksdb;

import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.StateBackendFactory;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;

/**
 * Makes our backend of "rocksdb" in a configuration: Flink's tests of restored SQL jobs, which name it
 * there, run unmodified on ours, and start from savepoints that RocksDB has written.
 */
public final class EmbeddedRocksDBStateBackendFactory implements StateBackendFactory<StateBackend> {
    @Override
    public StateBackend createFromConfig(ReadableConfig config, ClassLoader classLoader) {
        return new HashMapStateBackend().configure(config, classLoader);
    }
}
