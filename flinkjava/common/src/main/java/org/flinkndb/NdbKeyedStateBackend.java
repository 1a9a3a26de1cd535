package org.flinkndb;

import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.checkpoint.SnapshotType;
import org.apache.flink.runtime.query.TaskKvStateRegistry;
import org.apache.flink.runtime.state.CheckpointStreamFactory;
import org.apache.flink.runtime.state.DoneFuture;
import org.apache.flink.runtime.state.InternalKeyContext;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.Keyed;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.PriorityComparable;
import org.apache.flink.runtime.state.SavepointResources;
import org.apache.flink.runtime.state.SnapshotExecutionType;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.SnapshotStrategyRunner;
import org.apache.flink.runtime.state.StateSnapshotTransformer.StateSnapshotTransformFactory;
import org.apache.flink.runtime.state.StreamCompressionDecorator;
import org.apache.flink.runtime.state.heap.HeapPriorityQueueElement;
import org.flinkndb.backend.BackendCore;
import org.flinkndb.client.SnapshotKind;
import org.flinkndb.client.StateAccess;
import org.flinkndb.snapshot.CanonicalResources;
import org.flinkndb.snapshot.NdbSnapshotStrategy;
import org.flinkndb.state.StateKeys;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.RunnableFuture;
import java.util.stream.Stream;

/** The keyed state backend: what of {@link BackendCore} Flink's interfaces ask for. */
public final class NdbKeyedStateBackend<K> extends FlinkKeyedStateBackend<K> {
    private final BackendCore<K> core;

    NdbKeyedStateBackend(
            TaskKvStateRegistry kvStateRegistry,
            BackendCore<K> core,
            StateTracking tracking,
            CloseableRegistry closeables,
            StreamCompressionDecorator compression,
            InternalKeyContext<K> keyContext) {
        super(kvStateRegistry, core, tracking, closeables, compression, keyContext);
        this.core = core;
    }

    /**
     * Flink calls this before each record and timer: no object of a state is being changed now. The
     * adaptor for asynchronous jobs, where one may be, calls {@code setCurrentKeyAndKeyGroup} instead.
     */
    @Override
    public void setCurrentKey(K newKey) {
        StateAccess.run(core.writeBehind()::betweenRecords);
        super.setCurrentKey(newKey);
    }

    @Override
    @SuppressWarnings("unchecked")
    public <N, SV, SEV, S extends State, IS extends S> IS createOrUpdateInternalState(
            TypeSerializer<N> namespaceSerializer,
            StateDescriptor<S, SV> descriptor,
            StateSnapshotTransformFactory<SEV> transformers)
            throws Exception {
        return (IS)
                core.createOrUpdate(
                        namespaceSerializer,
                        descriptor,
                        (StateSnapshotTransformFactory<SV>) transformers);
    }

    /** Flink's changelog backend asks for this when it wraps another backend. */
    @Override
    public <N, SV, SEV, S extends State, IS extends S> IS createOrUpdateInternalState(
            TypeSerializer<N> namespaceSerializer,
            StateDescriptor<S, SV> descriptor,
            StateSnapshotTransformFactory<SEV> transformers,
            boolean allowFutureMetadataUpdates)
            throws Exception {
        if (allowFutureMetadataUpdates) {
            throw new UnsupportedOperationException(
                    "state.changelog.enabled: FlinkNDB does not work below the changelog backend,"
                        + " and does not need it, since its checkpoints write only what changed."
                        + " Set it to false.");
        }
        return createOrUpdateInternalState(namespaceSerializer, descriptor, transformers);
    }

    @Override
    @SuppressWarnings({"unchecked", "rawtypes"})
    public <T extends HeapPriorityQueueElement & PriorityComparable<? super T> & Keyed<?>>
            KeyGroupedInternalPriorityQueue<T> create(
                    String name, TypeSerializer<T> byteOrderedElementSerializer) {
        return core.timers(name, byteOrderedElementSerializer);
    }

    @Override
    public <N> Stream<K> getKeys(String state, N namespace) {
        StateKeys<K, N> found = core.keysOf(state);
        return found == null ? Stream.empty() : found.keys(namespace);
    }

    @Override
    public <N> Stream<K> getKeys(List<String> states, N namespace) {
        return states.stream().flatMap(state -> getKeys(state, namespace)).distinct();
    }

    @Override
    public <N> Stream<Tuple2<K, N>> getKeysAndNamespaces(String state) {
        StateKeys<K, N> found = core.keysOf(state);
        return found == null ? Stream.empty() : found.keysAndNamespaces();
    }

    @Override
    public RunnableFuture<SnapshotResult<KeyedStateHandle>> snapshot(
            long checkpointId,
            long timestamp,
            CheckpointStreamFactory streamFactory,
            CheckpointOptions options)
            throws Exception {
        if (core.isEmpty()) {
            return DoneFuture.of(SnapshotResult.empty());
        }
        SnapshotKind kind =
                options.getCheckpointType().isSavepoint()
                        ? SnapshotKind.SAVEPOINT
                        : SnapshotKind.CHECKPOINT;
        return new SnapshotStrategyRunner<>(
                        "FlinkNDB snapshot",
                        new NdbSnapshotStrategy<>(core, kind),
                        cancelStreamRegistry,
                        SnapshotExecutionType.ASYNCHRONOUS)
                .snapshot(checkpointId, timestamp, streamFactory, options);
    }

    @Override
    public SavepointResources<K> savepoint() throws IOException {
        return new SavepointResources<>(
                new CanonicalResources<>(core, keyGroupCompressionDecorator),
                SnapshotExecutionType.ASYNCHRONOUS);
    }

    /** Timers are rows of the snapshot. */
    @Override
    public boolean requiresLegacySynchronousTimerSnapshots(SnapshotType checkpointType) {
        return false;
    }

    @Override
    public void notifyCheckpointComplete(long checkpointId) {
        core.session().notifyCheckpoint(checkpointId, true);
    }

    @Override
    public void notifyCheckpointAborted(long checkpointId) {
        core.session().notifyCheckpoint(checkpointId, false);
    }

    @Override
    public int numKeyValueStateEntries() {
        return StateAccess.get(() -> Math.toIntExact(core.entryCount()));
    }

    @Override
    public void dispose() {
        super.dispose();
        core.close();
    }

    /** Also called by other threads, to unblock the task. */
    @Override
    public void close() throws IOException {
        super.close();
        core.close();
    }
}
