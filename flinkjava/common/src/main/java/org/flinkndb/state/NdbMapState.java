package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.MapSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.queryablestate.client.state.serialization.KvStateSerializer;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateEntry;
import org.apache.flink.runtime.state.internal.InternalMapState;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanRequest;
import org.flinkndb.client.StateAccess;
import org.flinkndb.client.StateKind;

import java.io.IOException;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/** Map state. */
final class NdbMapState<K, N, UK, UV> extends AbstractNdbState<K, N, Map<UK, UV>>
        implements InternalMapState<K, N, UK, UV> {
    private final MapCache<K, N, UK, UV> cache;

    NdbMapState(
            StateContext<K> context,
            StateDescriptor<?, Map<UK, UV>> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, Map<UK, UV>> metaInfo,
            boolean knownEmpty) {
        super(context, StateKind.MAP, descriptor, metaInfo);
        cache = new MapCache<>(this, !knownEmpty);
    }

    TypeSerializer<UK> userKeySerializer() {
        return ((MapSerializer<UK, UV>) getValueSerializer()).getKeySerializer();
    }

    TypeSerializer<UV> userValueSerializer() {
        return ((MapSerializer<UK, UV>) getValueSerializer()).getValueSerializer();
    }

    @Override
    public void reconfigure(
            StateDescriptor<?, Map<UK, UV>> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, Map<UK, UV>> newInfo) {
        super.reconfigure(descriptor, newInfo);
        cache.reconfigure();
    }

    private MapEntry<K, N, UK, UV> current() throws IOException, InterruptedException {
        return cache.entry(currentKey(), namespace(), context().currentKeyGroup());
    }

    @Override
    public UV get(UK userKey) throws Exception {
        return cache.slot(current(), userKey).value;
    }

    @Override
    public boolean contains(UK userKey) throws Exception {
        return cache.slot(current(), userKey).present;
    }

    @Override
    public void put(UK userKey, UV value) throws Exception {
        cache.put(current(), userKey, value);
    }

    @Override
    public void putAll(Map<UK, UV> values) throws Exception {
        if (values == null) {
            return;
        }
        for (Map.Entry<UK, UV> entry : values.entrySet()) {
            put(entry.getKey(), entry.getValue());
        }
    }

    @Override
    public void remove(UK userKey) throws Exception {
        cache.remove(current(), userKey);
    }

    @Override
    public void clear() {
        StateAccess.run(() -> cache.clear(current()));
    }

    @Override
    public boolean isEmpty() throws Exception {
        MapEntry<K, N, UK, UV> entry = current();
        for (MapEntry.Slot<UK, UV> slot : entry.slots.values()) {
            if (slot.present) {
                return false;
            }
        }
        return entry.complete || !iterator().hasNext();
    }

    @Override
    public Iterable<Map.Entry<UK, UV>> entries() {
        return this::openIterator;
    }

    @Override
    public Iterable<UK> keys() {
        return () -> new MappedIterator<>(openIterator(), Map.Entry::getKey);
    }

    @Override
    public Iterable<UV> values() {
        return () -> new MappedIterator<>(openIterator(), Map.Entry::getValue);
    }

    @Override
    public Iterator<Map.Entry<UK, UV>> iterator() {
        return openIterator();
    }

    private Iterator<Map.Entry<UK, UV>> openIterator() {
        return StateAccess.get(
                () -> {
                    K key = currentKey();
                    N namespace = namespace();
                    int group = context().currentKeyGroup();
                    MapEntry<K, N, UK, UV> entry = cache.entry(key, namespace, group);
                    Access access = new Access(key, namespace, group);
                    if (cache.complete(entry)) {
                        return new MapIterator<>(present(entry).iterator(), access);
                    }
                    context().writeBehind().flush();
                    return new MapIterator<>(
                            new MapScanIterator<>(cache, entry, cache.scan(entry)), access);
                });
    }

    private List<UK> present(MapEntry<K, N, UK, UV> entry) {
        List<UK> userKeys = new ArrayList<>(entry.slots.size());
        entry.slots.forEach(
                (at, slot) -> {
                    if (slot.present) {
                        userKeys.add(slot.key);
                    }
                });
        return userKeys;
    }

    /** Reaches the map that an iterator was opened on, whatever the current key is. */
    private final class Access implements MapIterator.Access<UK, UV> {
        private final K key;
        private final N namespace;
        private final int group;

        private Access(K key, N namespace, int group) {
            this.key = key;
            this.namespace = namespace;
            this.group = group;
        }

        @Override
        public MapEntry.Slot<UK, UV> slot(UK userKey) {
            return StateAccess.get(() -> cache.slot(cache.entry(key, namespace, group), userKey));
        }

        @Override
        public void put(UK userKey, UV value) {
            StateAccess.run(() -> cache.put(cache.entry(key, namespace, group), userKey, value));
        }

        @Override
        public void remove(UK userKey) {
            StateAccess.run(() -> cache.remove(cache.entry(key, namespace, group), userKey));
        }
    }

    @Override
    void migrateValue(
            TypeSerializer<Map<UK, UV>> from,
            TypeSerializer<Map<UK, UV>> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException {
        boolean isNull = in.readBoolean();
        out.writeBoolean(isNull);
        if (!isNull) {
            context()
                    .serializers()
                    .migrate(
                            ((MapSerializer<UK, UV>) from).getValueSerializer(),
                            ((MapSerializer<UK, UV>) to).getValueSerializer(),
                            in,
                            out);
        }
    }

    @Override
    StoredCache<K, N, ?> cache() {
        return cache;
    }

    @Override
    List<Map<UK, UV>> cachedAt(K key, N namespace) {
        return cache.cachedAt(key, namespace);
    }

    @Override
    Map<UK, UV> valueOfRow(EntryBatch page, int i, ValueBytes bytes) throws IOException {
        UK userKey = cache.userKey(page, i);
        UV value = cache.readValue(codec(true).input(bytes.data, bytes.offset, bytes.length));
        return Collections.singletonMap(userKey, value);
    }

    /** What was looked at is one entry, which stays as it is or goes. */
    @Override
    void retain(StateEntry<K, N, Map<UK, UV>> looked, Map<UK, UV> left)
            throws IOException, InterruptedException {
        if (!isNothing(left)) {
            return;
        }
        K key = looked.getKey();
        for (UK userKey : looked.getState().keySet()) {
            cache.remove(cache.entry(key, looked.getNamespace(), groupOf(key)), userKey);
        }
    }

    @Override
    boolean isNothing(Map<UK, UV> left) {
        return left == null || left.isEmpty();
    }

    @Override
    byte[] serializedValue(
            K key,
            N namespace,
            int group,
            RowCodec<K, N> safeCodec,
            TypeSerializer<Map<UK, UV>> safeValueSerializer)
            throws Exception {
        MapSerializer<UK, UV> serializer = (MapSerializer<UK, UV>) safeValueSerializer;
        List<Map.Entry<UK, UV>> entries = cache.snapshotForQuery(key, namespace);
        if (entries == null) {
            entries = scanForQuery(key, namespace, group, safeCodec, serializer);
        }
        return entries.isEmpty()
                ? null
                : KvStateSerializer.serializeMap(
                        entries, serializer.getKeySerializer(), serializer.getValueSerializer());
    }

    private List<Map.Entry<UK, UV>> scanForQuery(
            K key, N namespace, int group, RowCodec<K, N> codec, MapSerializer<UK, UV> serializer)
            throws IOException, InterruptedException {
        RowScan rows =
                new RowScan(
                        context().session(),
                        ScanRequest.byGroup(wireIndex(), group, group)
                                .withPrefix(codec.keyBytes(key, namespace)));
        List<Map.Entry<UK, UV>> entries = new ArrayList<>();
        while (rows.next()) {
            EntryBatch page = rows.page();
            for (int i = 0; i < page.size(); i++) {
                DataInputDeserializer in =
                        codec.input(page.keyData(), page.keyOffset(i), page.keyLength(i));
                codec.readKey(in);
                codec.readNamespace(in);
                UK userKey = serializer.getKeySerializer().deserialize(in);
                in = codec.input(page.valueData(), page.valueOffset(i), page.valueLength(i));
                UV value =
                        in.readBoolean() ? null : serializer.getValueSerializer().deserialize(in);
                entries.add(new AbstractMap.SimpleEntry<>(userKey, value));
            }
        }
        return entries;
    }
}
