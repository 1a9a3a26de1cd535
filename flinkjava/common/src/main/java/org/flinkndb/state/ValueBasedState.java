package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateEntry;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateAccess;
import org.flinkndb.client.StateKind;

import java.io.IOException;
import java.util.List;

/** A state with one value for each key and namespace. */
abstract class ValueBasedState<K, N, V> extends AbstractNdbState<K, N, V> {
    private final ValueCache<K, N, V> cache;

    ValueBasedState(
            StateContext<K> context,
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo,
            boolean knownEmpty) {
        super(context, StateKind.VALUE, descriptor, metaInfo);
        cache = new ValueCache<>(this, !knownEmpty);
    }

    @Override
    public void reconfigure(
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> newInfo) {
        super.reconfigure(descriptor, newInfo);
        cache.reconfigure();
    }

    final V load() throws IOException, InterruptedException {
        return cache.get(currentKey(), namespace(), context().currentKeyGroup());
    }

    final V load(N namespace) throws IOException, InterruptedException {
        return cache.get(currentKey(), cached(namespace), context().currentKeyGroup());
    }

    final void store(V value) throws IOException, InterruptedException {
        cache.put(currentKey(), namespace(), context().currentKeyGroup(), value);
    }

    final void store(N namespace, V value) throws IOException, InterruptedException {
        cache.put(currentKey(), cached(namespace), context().currentKeyGroup(), value);
    }

    @Override
    public void clear() {
        StateAccess.run(() -> store(null));
    }

    @Override
    void migrateValue(
            TypeSerializer<V> from,
            TypeSerializer<V> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException {
        context().serializers().migrate(from, to, in, out);
    }

    @Override
    StoredCache<K, N, ?> cache() {
        return cache;
    }

    @Override
    final void retain(StateEntry<K, N, V> looked, V left) throws IOException, InterruptedException {
        K key = looked.getKey();
        cache.put(key, looked.getNamespace(), groupOf(key), left);
    }

    @Override
    final List<V> cachedAt(K key, N namespace) {
        V value = cache.cachedAt(key, namespace);
        return value == null ? List.of() : List.of(value);
    }

    @Override
    final V valueOfRow(EntryBatch page, int i, ValueBytes bytes) throws IOException {
        return cache.deserialize(bytes);
    }

    @Override
    byte[] serializedValue(
            K key,
            N namespace,
            int group,
            RowCodec<K, N> safeCodec,
            TypeSerializer<V> safeValueSerializer)
            throws Exception {
        return cache.serialized(key, namespace, group, safeCodec, safeValueSerializer);
    }
}
