package org.flinkndb.backend;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.InternalKeyContext;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.Keyed;
import org.apache.flink.runtime.state.KeyedBackendSerializationProxy;
import org.apache.flink.runtime.state.PriorityComparable;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.RegisteredPriorityQueueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateSnapshotTransformer.StateSnapshotTransformFactory;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.apache.flink.util.StateMigrationException;
import org.flinkndb.cache.CacheBudget;
import org.flinkndb.cache.FlushListener;
import org.flinkndb.cache.WriteBehind;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.SnapshotSchema;
import org.flinkndb.client.StateKind;
import org.flinkndb.client.StateName;
import org.flinkndb.client.StateSession;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.state.MigrationCheck;
import org.flinkndb.state.NdbState;
import org.flinkndb.state.NdbStates;
import org.flinkndb.state.SerializerSupport;
import org.flinkndb.state.StateContext;
import org.flinkndb.state.StateKeys;
import org.flinkndb.timer.FiringTimers;
import org.flinkndb.timer.NdbTimerQueue;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What the keyed state backends of all Flink lines have in common: the session, the registered states
 * and timers, the schema. Task thread, except {@link #close}.
 */
public final class BackendCore<K> implements StateContext<K>, Closeable {
    private final NdbSettings settings;
    private final StateSession session;
    private final WriteBehind writeBehind;
    private final CacheBudget.Account cacheAccount;
    private final InternalKeyContext<K> keyContext;
    private final TypeSerializer<K> keySerializer;
    private final ExecutionConfig executionConfig;
    private final ClassLoader userClassLoader;
    private final TtlTimeProvider ttlTimeProvider;
    private final SerializerSupport serializerSupport;

    private final Map<String, RegisteredKeyValueStateBackendMetaInfo<?, ?>> metaInfos =
            new LinkedHashMap<>();
    private final Map<String, NdbState<K, ?, ?>> states = new LinkedHashMap<>();
    private final FiringTimers firingTimers = new FiringTimers();
    private final TimerRegistry timers = new TimerRegistry(this);
    private SnapshotSchema schema;

    public BackendCore(
            NdbSettings settings,
            StateSession session,
            CacheBudget.Account cacheAccount,
            InternalKeyContext<K> keyContext,
            TypeSerializer<K> keySerializer,
            ExecutionConfig executionConfig,
            ClassLoader userClassLoader,
            TtlTimeProvider ttlTimeProvider,
            SerializerSupport serializerSupport,
            FlushListener listener) {
        this.settings = settings;
        this.session = session;
        this.cacheAccount = cacheAccount;
        this.keyContext = keyContext;
        this.keySerializer = keySerializer;
        this.executionConfig = executionConfig;
        this.userClassLoader = userClassLoader;
        this.ttlTimeProvider = ttlTimeProvider;
        this.serializerSupport = serializerSupport;
        this.writeBehind =
                new WriteBehind(
                        session,
                        settings.batchRows(),
                        settings.batchBytes(),
                        settings.dirtyBytes(),
                        listener);
    }

    // ----------------------------------------------------------------------------- StateContext

    @Override
    public K currentKey() {
        return keyContext.getCurrentKey();
    }

    @Override
    public int currentKeyGroup() {
        return keyContext.getCurrentKeyGroupIndex();
    }

    @Override
    public TypeSerializer<K> keySerializer() {
        return keySerializer;
    }

    @Override
    public int numberOfKeyGroups() {
        return keyContext.getNumberOfKeyGroups();
    }

    @Override
    public KeyGroupRange keyGroupRange() {
        return keyContext.getKeyGroupRange();
    }

    @Override
    public ExecutionConfig executionConfig() {
        return executionConfig;
    }

    @Override
    public ClassLoader userClassLoader() {
        return userClassLoader;
    }

    @Override
    public TtlTimeProvider ttlTimeProvider() {
        return ttlTimeProvider;
    }

    @Override
    public StateSession session() {
        return session;
    }

    @Override
    public WriteBehind writeBehind() {
        return writeBehind;
    }

    @Override
    public CacheBudget.Account cacheAccount() {
        return cacheAccount;
    }

    @Override
    public SerializerSupport serializers() {
        return serializerSupport;
    }

    @Override
    public FiringTimers firingTimers() {
        return firingTimers;
    }

    public NdbSettings settings() {
        return settings;
    }

    // ------------------------------------------------------------------------------ registration

    /** Takes over what a restored snapshot says of a state; the first word counts. */
    public void restored(StateMetaInfoSnapshot snapshot) {
        switch (snapshot.getBackendStateType()) {
            case KEY_VALUE:
                metaInfos.putIfAbsent(
                        snapshot.getName(), new RegisteredKeyValueStateBackendMetaInfo<>(snapshot));
                break;
            case PRIORITY_QUEUE:
                timers.restored(new RegisteredPriorityQueueStateBackendMetaInfo<>(snapshot));
                break;
            default:
                throw new IllegalStateException(
                        "State "
                                + snapshot.getName()
                                + " is of type "
                                + snapshot.getBackendStateType()
                                + ", which this backend does not support: it was written by another"
                                + " kind of operator or a newer Flink.");
        }
        schemaChanged();
    }

    /** Index on the wire of a restored state, for writing its rows. */
    public int wireIndex(StateMetaInfoSnapshot snapshot) {
        if (snapshot.getBackendStateType()
                == StateMetaInfoSnapshot.BackendStateType.PRIORITY_QUEUE) {
            return session.registerState(snapshot.getName(), StateKind.TIMER);
        }
        return session.registerState(
                snapshot.getName(), kindOf(metaInfos.get(snapshot.getName()).getStateType()));
    }

    private static StateKind kindOf(StateDescriptor.Type type) {
        switch (type) {
            case LIST:
                return StateKind.LIST;
            case MAP:
                return StateKind.MAP;
            default:
                return StateKind.VALUE;
        }
    }

    /** Makes or updates a state, with the checks that Flink demands at registration. */
    @SuppressWarnings("unchecked")
    public <N, V> NdbState<K, N, V> createOrUpdate(
            TypeSerializer<N> namespaceSerializer,
            StateDescriptor<?, V> descriptor,
            StateSnapshotTransformFactory<V> transformers)
            throws Exception {
        String name = descriptor.getName();
        RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo =
                (RegisteredKeyValueStateBackendMetaInfo<N, V>) metaInfos.get(name);
        boolean known = metaInfo != null;
        boolean migrate = false;
        if (known) {
            migrate = update(metaInfo, namespaceSerializer, descriptor, transformers);
        } else {
            metaInfo =
                    new RegisteredKeyValueStateBackendMetaInfo<>(
                            descriptor.getType(),
                            name,
                            namespaceSerializer,
                            descriptor.getSerializer(),
                            transformers);
            metaInfos.put(name, metaInfo);
        }
        schemaChanged();
        NdbState<K, N, V> state = (NdbState<K, N, V>) states.get(name);
        boolean created = state == null;
        if (created) {
            state = NdbStates.create(this, descriptor, metaInfo, !known);
            states.put(name, state);
        } else {
            state.reconfigure(descriptor, metaInfo);
        }
        if (migrate) {
            state.migrate(metaInfo);
        }
        if (created && known && settings.recovery() == NdbOptions.Recovery.EAGER) {
            state.loadEagerly();
        }
        return state;
    }

    /** Checks a repeated registration; returns whether the values must be migrated. */
    private <N, V> boolean update(
            RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo,
            TypeSerializer<N> namespaceSerializer,
            StateDescriptor<?, V> descriptor,
            StateSnapshotTransformFactory<V> transformers)
            throws Exception {
        metaInfo.updateSnapshotTransformFactory(transformers);
        TypeSerializer<N> namespaceBefore = metaInfo.getNamespaceSerializer();
        TypeSerializerSchemaCompatibility<N> namespace =
                metaInfo.updateNamespaceSerializer(namespaceSerializer);
        if (namespace.isCompatibleAfterMigration() || namespace.isIncompatible()) {
            throw new StateMigrationException(
                    "The new namespace serializer ("
                            + namespaceSerializer
                            + ") of state "
                            + descriptor.getName()
                            + " must be compatible with the one before ("
                            + namespaceBefore
                            + ").");
        }
        metaInfo.checkStateMetaInfo(descriptor);
        TypeSerializer<V> before = metaInfo.getStateSerializer();
        TypeSerializerSchemaCompatibility<V> values =
                metaInfo.updateStateSerializer(descriptor.getSerializer());
        if (values.isIncompatible()) {
            throw new StateMigrationException(
                    "The new serializer ("
                            + descriptor.getSerializer()
                            + ") of state "
                            + descriptor.getName()
                            + " must not be incompatible with the one before ("
                            + before
                            + ").");
        }
        if (values.isCompatibleAfterMigration()) {
            MigrationCheck.check(before, metaInfo.getStateSerializer());
        }
        return values.isCompatibleAfterMigration();
    }

    /** Makes or updates a timer queue. */
    public <T extends PriorityComparable<? super T> & Keyed<?>> NdbTimerQueue<T> timers(
            String name, TypeSerializer<T> serializer) {
        return timers.createOrUpdate(name, serializer);
    }

    /** The keys of a state by name; null where there is no such state. */
    @SuppressWarnings("unchecked")
    public <N> StateKeys<K, N> keysOf(String name) {
        RegisteredKeyValueStateBackendMetaInfo<N, ?> metaInfo =
                (RegisteredKeyValueStateBackendMetaInfo<N, ?>) metaInfos.get(name);
        if (metaInfo == null) {
            return null;
        }
        int index = session.registerState(name, kindOf(metaInfo.getStateType()));
        return new StateKeys<>(this, index, metaInfo.getNamespaceSerializer());
    }

    /** Exact number of entries of all key-value states. */
    public long entryCount() throws IOException, InterruptedException {
        writeBehind.flush();
        long count = 0;
        for (RegisteredKeyValueStateBackendMetaInfo<?, ?> metaInfo : metaInfos.values()) {
            int index = session.registerState(metaInfo.getName(), kindOf(metaInfo.getStateType()));
            count +=
                    session.await(
                            session.count(
                                    index,
                                    keyGroupRange().getStartKeyGroup(),
                                    keyGroupRange().getEndKeyGroup()));
        }
        return count;
    }

    /** Sends entries beside the cache, in batches, as of the current epoch. */
    public void writeAll(EntryBatch entries) throws IOException, InterruptedException {
        int limit = Math.min(settings.batchRows(), session.limits().maxBatchRows());
        EntryBatch batch = new EntryBatch();
        for (int i = 0; i < entries.size(); i++) {
            batch.add(
                    entries.state(i),
                    entries.group(i),
                    entries.op(i),
                    entries.keyData(),
                    entries.keyOffset(i),
                    entries.keyLength(i),
                    entries.valueData(),
                    entries.valueOffset(i),
                    entries.valueLength(i));
            if (batch.size() >= limit || batch.dataBytes() >= settings.batchBytes()) {
                session.write(writeBehind.epoch(), batch);
                batch = new EntryBatch();
            }
        }
        if (!batch.isEmpty()) {
            session.write(writeBehind.epoch(), batch);
        }
    }

    // ------------------------------------------------------------------------------------ schema

    void schemaChanged() {
        schema = null;
    }

    /** Whether nothing was registered or restored. */
    public boolean isEmpty() {
        return metaInfos.isEmpty() && timers.metaInfos().isEmpty();
    }

    /** Key-value states, then timers: their order numbers the states of a canonical savepoint. */
    public List<StateMetaInfoSnapshot> metaInfoSnapshots() {
        List<StateMetaInfoSnapshot> snapshots = new ArrayList<>();
        metaInfos.values().forEach(metaInfo -> snapshots.add(metaInfo.snapshot()));
        timers.metaInfos().forEach(metaInfo -> snapshots.add(metaInfo.snapshot()));
        return snapshots;
    }

    /** The key-value states, in the order of {@link #metaInfoSnapshots}. */
    public List<RegisteredKeyValueStateBackendMetaInfo<?, ?>> keyValueMetaInfos() {
        return new ArrayList<>(metaInfos.values());
    }

    /** Flink's description of keys and states, as a snapshot carries it. */
    public SnapshotSchema schema() throws IOException {
        if (schema == null) {
            DataOutputSerializer out = new DataOutputSerializer(1024);
            new KeyedBackendSerializationProxy<>(keySerializer, metaInfoSnapshots(), false)
                    .write(out);
            schema = new SnapshotSchema(out.getCopyOfBuffer(), stateNames());
        }
        return schema;
    }

    /** The states in the order of {@link #metaInfoSnapshots}. */
    private List<StateName> stateNames() {
        List<StateName> names = new ArrayList<>();
        metaInfos.forEach(
                (name, metaInfo) ->
                        names.add(new StateName(name, kindOf(metaInfo.getStateType()))));
        timers.metaInfos()
                .forEach(metaInfo -> names.add(new StateName(metaInfo.getName(), StateKind.TIMER)));
        return names;
    }

    @Override
    public void close() {
        writeBehind.close();
        session.close();
        cacheAccount.close();
    }
}
