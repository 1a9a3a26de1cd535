package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.queryablestate.client.state.serialization.KvStateSerializer;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateEntry;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateKind;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** What all kinds of state have in common: registration, key bytes, scans, migration. */
abstract class AbstractNdbState<K, N, V> implements NdbState<K, N, V> {
    private final StateContext<K> context;
    private final int wireIndex;

    private RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo;
    private RowCodec<K, N> taskCodec;
    private volatile RowCodec<K, N> flusherCodec;
    private final CleanupScan<K, N, V> cleanupScan = new CleanupScan<>(new StoredRows<>(this));
    private final CleanupPace cleanupPace = new CleanupPace();
    private RowTransformer readFilter;
    private StoredForm<K> keyForm;
    private StoredForm<N> namespaceForm;
    private V defaultValue;
    private N currentNamespace;

    AbstractNdbState(
            StateContext<K> context,
            StateKind kind,
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo) {
        this.context = context;
        this.wireIndex = context.session().registerState(metaInfo.getName(), kind);
        this.metaInfo = metaInfo;
        this.defaultValue = descriptor.getDefaultValue();
        makeCodecs();
    }

    private void makeCodecs() {
        readFilter = RowTransformer.of(metaInfo);
        keyForm = new StoredForm<>(context.keySerializer());
        namespaceForm = new StoredForm<>(metaInfo.getNamespaceSerializer());
        taskCodec = new RowCodec<>(context.keySerializer(), metaInfo.getNamespaceSerializer());
        flusherCodec =
                new RowCodec<>(
                        context.keySerializer().duplicate(),
                        metaInfo.getNamespaceSerializer().duplicate());
    }

    @Override
    public void reconfigure(
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> newInfo) {
        metaInfo = newInfo;
        defaultValue = descriptor.getDefaultValue();
        makeCodecs();
        cleanupScan.reset();
    }

    final StateContext<K> context() {
        return context;
    }

    @Override
    public final int wireIndex() {
        return wireIndex;
    }

    @Override
    public final RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo() {
        return metaInfo;
    }

    @Override
    public final TypeSerializer<K> getKeySerializer() {
        return context.keySerializer();
    }

    @Override
    public final TypeSerializer<N> getNamespaceSerializer() {
        return metaInfo.getNamespaceSerializer();
    }

    @Override
    public final TypeSerializer<V> getValueSerializer() {
        return metaInfo.getStateSerializer();
    }

    @Override
    public final void setCurrentNamespace(N namespace) {
        currentNamespace = namespace;
    }

    /** The current namespace, as the cache finds it. */
    final N namespace() throws IOException {
        return cached(currentNamespace);
    }

    /** A namespace as the cache finds it. */
    final N cached(N namespace) throws IOException {
        return namespaceForm.of(namespace);
    }

    /** The current key, as the cache finds it. */
    final K currentKey() throws IOException {
        K key = context.currentKey();
        if (key == null) {
            throw new NullPointerException(
                    "No key set. This method should not be called outside of a keyed context.");
        }
        return keyForm.of(key);
    }

    final RowCodec<K, N> codec(boolean byTask) {
        return byTask ? taskCodec : flusherCodec;
    }

    /**
     * Serializes a part of a value.
     *
     * @throws IOException naming the state, when it cannot be done: mostly since it is too large for an
     *     array
     */
    final <X> void serialize(TypeSerializer<X> serializer, X value, DataOutputSerializer out)
            throws IOException {
        try {
            serializer.serialize(value, out);
        } catch (IOException e) {
            throw new IOException(
                    "state '"
                            + metaInfo.getName()
                            + "': a value could not be serialized (buffer of "
                            + out.getSharedBuffer().length
                            + " bytes); the server takes values of "
                            + context.session().limits().maxValueBytes()
                            + " bytes (flinkndb serve --max-value-bytes)",
                    e);
        }
    }

    /** A copy of the descriptor's default value, or null. */
    final V defaultValue() {
        return defaultValue == null ? null : getValueSerializer().copy(defaultValue);
    }

    /** Reads the row of a key and namespace and, with the same request, the rows of others. Task thread. */
    final Answer<K, N> readRows(K key, N namespace, int group, List<Address<K, N>> along)
            throws IOException, InterruptedException {
        EntryBatch request = new EntryBatch(1 + along.size());
        addToRequest(request, key, namespace, group);
        for (Address<K, N> at : along) {
            addToRequest(request, at.key(), at.namespace(), groupOf(at.key()));
        }
        return new Answer<>(context.session().await(context.session().read(request)), along);
    }

    private void addToRequest(EntryBatch request, K key, N namespace, int group)
            throws IOException {
        DataOutputSerializer bytes = taskCodec.startKey(key, namespace);
        addToRequest(request, group, bytes.getSharedBuffer(), bytes.length());
    }

    private void addToRequest(EntryBatch request, int group, byte[] key, int keyLength) {
        request.add(wireIndex, group, EntryBatch.OP_NONE, key, 0, keyLength, key, 0, 0);
    }

    final int groupOf(K key) {
        return KeyGroupRangeAssignment.assignToKeyGroup(key, context.numberOfKeyGroups());
    }

    /**
     * Where the state is likely to be asked next, when it is asked for a key and namespace now: if that
     * is for a timer, the timers after it will ask too. Timers of a window ask in its namespace.
     */
    @SuppressWarnings("unchecked") // the timers of a queue are of one kind
    final List<Address<K, N>> askedNext(K key, N namespace, int limit) throws IOException {
        InternalTimer<?, ?> now = context.firingTimers().last();
        if (now == null || !key.equals(keyForm.of((K) now.getKey()))) {
            return List.of();
        }
        boolean sameNamespace = namespace.equals(VoidNamespace.INSTANCE);
        if (!sameNamespace && !namespace.equals(now.getNamespace())) {
            return List.of();
        }
        List<Address<K, N>> next = new ArrayList<>(limit);
        for (InternalTimer<?, ?> timer : context.firingTimers().next(limit)) {
            N at = sameNamespace ? namespace : cached((N) timer.getNamespace());
            next.add(new Address<>(keyForm.of((K) timer.getKey()), at));
        }
        return next;
    }

    /** Reads one row; null when it is absent. */
    final EntryBatch readRow(int group, byte[] key, int keyLength)
            throws IOException, InterruptedException {
        EntryBatch request = new EntryBatch(1, keyLength, 0);
        addToRequest(request, group, key, keyLength);
        EntryBatch answer = context.session().await(context.session().read(request));
        return answer.op(0) == EntryBatch.OP_PUT ? answer : null;
    }

    /**
     * What is left of a row's value after Flink's filter for full snapshots (expired values), if the
     * state has one: the array and the part of it; null when nothing is left. Task thread.
     */
    final ValueBytes filtered(EntryBatch row, int i) throws IOException {
        if (readFilter == null) {
            return new ValueBytes(row.valueData(), row.valueOffset(i), row.valueLength(i), true);
        }
        byte[] value = row.value(i);
        byte[] kept = readFilter.apply(value);
        return kept == null ? null : new ValueBytes(kept, 0, kept.length, kept == value);
    }

    /** A part of an array. */
    static final class ValueBytes {
        final byte[] data;
        final int offset;
        final int length;

        /** Whether it is the row's value as the store has it. */
        final boolean asStored;

        private ValueBytes(byte[] data, int offset, int length, boolean asStored) {
            this.data = data;
            this.offset = offset;
            this.length = length;
            this.asStored = asStored;
        }
    }

    // --------------------------------------------------------------------------------- migration

    @Override
    public void migrate(RegisteredKeyValueStateBackendMetaInfo<N, V> writtenWith)
            throws IOException, InterruptedException {
        RowScan rows = RowScan.ofState(context, wireIndex, false);
        DataOutputSerializer out = new DataOutputSerializer(128);
        DataInputDeserializer in = new DataInputDeserializer();
        TypeSerializer<V> from = writtenWith.getPreviousStateSerializer();
        while (rows.next()) {
            EntryBatch page = rows.page();
            EntryBatch migrated = new EntryBatch(page.size());
            for (int i = 0; i < page.size(); i++) {
                in.setBuffer(page.valueData(), page.valueOffset(i), page.valueLength(i));
                out.clear();
                migrateValue(from, getValueSerializer(), in, out);
                migrated.add(
                        wireIndex,
                        page.group(i),
                        EntryBatch.OP_PUT,
                        page.keyData(),
                        page.keyOffset(i),
                        page.keyLength(i),
                        out.getSharedBuffer(),
                        0,
                        out.length());
            }
            if (!migrated.isEmpty()) {
                context.session().write(context.writeBehind().epoch(), migrated);
            }
        }
        cache().forget(); // the store has been changed beside the cache
        cleanupScan.reset();
    }

    /** Migrates the bytes of one row. */
    abstract void migrateValue(
            TypeSerializer<V> from,
            TypeSerializer<V> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException;

    /** What is cached of the state. */
    abstract StoredCache<K, N, ?> cache();

    @Override
    public final void loadEagerly() {
        cache().loadEagerly();
    }

    // ----------------------------------------------------------------------- incremental clean-up

    @Override
    public final StateIncrementalVisitor<K, N, V> getStateIncrementalVisitor(int recommended) {
        CleanupVisitor.Access<K, N, V> access =
                new CleanupVisitor.Access<>() {
                    @Override
                    public List<V> cached(K key, N namespace) {
                        return cachedAt(key, namespace);
                    }

                    @Override
                    public void retain(StateEntry<K, N, V> looked, V left)
                            throws IOException, InterruptedException {
                        AbstractNdbState.this.retain(looked, left);
                    }
                };
        if (!cleanupPace.mayBegin(cache().cachedEntries())) {
            return new CleanupVisitor<>(access, List.of(), cleanupScan, recommended);
        }
        return new CleanupVisitor<>(access, cache().addresses(), cleanupScan.begin(), recommended);
    }

    /** What is cached of the value of any key, of a map each entry by itself. Never reads. */
    abstract List<V> cachedAt(K key, N namespace);

    /** What a row holds, as a value of the state. */
    abstract V valueOfRow(EntryBatch page, int i, ValueBytes bytes) throws IOException;

    /** Sets what clean-up has looked at to what is left of it; null for nothing. */
    abstract void retain(StateEntry<K, N, V> looked, V left)
            throws IOException, InterruptedException;

    /** Whether clean-up has left nothing. */
    boolean isNothing(V left) {
        return left == null;
    }

    // --------------------------------------------------------------------------- queryable state

    @Override
    public final byte[] getSerializedValue(
            byte[] serializedKeyAndNamespace,
            TypeSerializer<K> safeKeySerializer,
            TypeSerializer<N> safeNamespaceSerializer,
            TypeSerializer<V> safeValueSerializer)
            throws Exception {
        Tuple2<K, N> at =
                KvStateSerializer.deserializeKeyAndNamespace(
                        serializedKeyAndNamespace, safeKeySerializer, safeNamespaceSerializer);
        int group = KeyGroupRangeAssignment.assignToKeyGroup(at.f0, context.numberOfKeyGroups());
        return serializedValue(
                at.f0,
                at.f1,
                group,
                new RowCodec<>(safeKeySerializer, safeNamespaceSerializer),
                safeValueSerializer);
    }

    /** The value for a query, or null. Any thread. */
    abstract byte[] serializedValue(
            K key,
            N namespace,
            int group,
            RowCodec<K, N> safeCodec,
            TypeSerializer<V> safeValueSerializer)
            throws Exception;

    /** Reads one row for a query; null when it is absent. Any thread. */
    final byte[] readForQuery(int group, byte[] key) throws IOException, InterruptedException {
        EntryBatch row = readRow(group, key, key.length);
        return row == null ? null : row.value(0);
    }
}
