package org.flinkndb.testutil;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.checkpoint.SavepointType;
import org.apache.flink.runtime.operators.testutils.MockEnvironment;
import org.apache.flink.runtime.query.KvStateRegistry;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.CheckpointStorageLocationReference;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateBackendParametersImpl;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.StateBackendLoader;
import org.apache.flink.runtime.state.memory.MemCheckpointStreamFactory;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;

import java.util.Collection;
import java.util.concurrent.RunnableFuture;

/** Makes keyed backends as a task does. */
public final class TestBackends {
    private static final long MANAGED_MEMORY = 256L << 20;
    private static final int STREAM_BYTES = 1 << 20;

    private TestBackends() {}

    /**
     * A state backend as Flink's configuration names it.
     *
     * @param name ndb, hashmap, rocksdb, or rocksdb-heap-timers
     * @param server address of the server for ndb
     */
    public static StateBackend named(String name, String server) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", server);
        if (name.equals("ndb")) {
            configuration.setString("state.backend.type", "org.flinkndb.NdbStateBackendFactory");
        } else if (name.equals("rocksdb-heap-timers")) {
            configuration.setString("state.backend.type", "rocksdb");
            configuration.setString("state.backend.rocksdb.timer-service.factory", "heap");
        } else {
            configuration.setString("state.backend.type", name);
        }
        return StateBackendLoader.loadStateBackendFromConfig(
                configuration, TestBackends.class.getClassLoader(), null);
    }

    /** Makes the backend of one operator, for all key groups of a range, from handles. */
    public static <K> AbstractKeyedStateBackend<K> open(
            StateBackend factory,
            JobID job,
            TypeSerializer<K> keys,
            int keyGroups,
            KeyGroupRange range,
            Collection<KeyedStateHandle> handles)
            throws Exception {
        return open(factory, job, keys, keyGroups, range, handles, TtlTimeProvider.DEFAULT);
    }

    /** The same, with a clock for state with time to live. */
    public static <K> AbstractKeyedStateBackend<K> open(
            StateBackend factory,
            JobID job,
            TypeSerializer<K> keys,
            int keyGroups,
            KeyGroupRange range,
            Collection<KeyedStateHandle> handles,
            TtlTimeProvider clock)
            throws Exception {
        MockEnvironment env =
                MockEnvironment.builder().setManagedMemorySize(MANAGED_MEMORY).build();
        return (AbstractKeyedStateBackend<K>)
                factory.createKeyedStateBackend(
                        new KeyedStateBackendParametersImpl<>(
                                env,
                                job,
                                "operator",
                                keys,
                                keyGroups,
                                range,
                                new KvStateRegistry().createTaskRegistry(job, env.getJobVertexId()),
                                clock,
                                new UnregisteredMetricsGroup(),
                                (name, value) -> {},
                                handles,
                                new CloseableRegistry(),
                                1.0));
    }

    /** Begins a native savepoint as a task does. */
    public static RunnableFuture<SnapshotResult<KeyedStateHandle>> nativeSavepoint(
            AbstractKeyedStateBackend<?> backend, long id) throws Exception {
        return backend.snapshot(
                id,
                id,
                new MemCheckpointStreamFactory(STREAM_BYTES),
                new CheckpointOptions(
                        SavepointType.savepoint(SavepointFormatType.NATIVE),
                        CheckpointStorageLocationReference.getDefault()));
    }

    /** Begins a checkpoint as a task does; the result is there when the future has been run. */
    public static RunnableFuture<SnapshotResult<KeyedStateHandle>> checkpoint(
            AbstractKeyedStateBackend<?> backend, long id) throws Exception {
        return backend.snapshot(
                id,
                id,
                new MemCheckpointStreamFactory(STREAM_BYTES),
                CheckpointOptions.forCheckpointWithDefaultLocation());
    }

    /** Runs a checkpoint and returns its handle. */
    public static KeyedStateHandle handleOf(
            RunnableFuture<SnapshotResult<KeyedStateHandle>> checkpoint) throws Exception {
        checkpoint.run();
        return checkpoint.get().getJobManagerOwnedSnapshot();
    }
}
