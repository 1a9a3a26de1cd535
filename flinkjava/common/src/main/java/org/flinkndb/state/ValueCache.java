package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.flinkndb.cache.WriteSink;
import org.flinkndb.client.EntryBatch;

import java.io.IOException;

/** The cache of a state with one value for each key and namespace: value, reducing, aggregating. */
final class ValueCache<K, N, V> extends StoredCache<K, N, ValueEntry<K, N, V>> {
    private static final byte[] NOTHING = new byte[0];

    private final AbstractNdbState<K, N, V> state;
    private final SizeEstimate sizes = new SizeEstimate();
    private TypeSerializer<V> serializer;
    private volatile TypeSerializer<V> flusherSerializer;
    private boolean immutable;

    ValueCache(AbstractNdbState<K, N, V> state, boolean storeUnknown) {
        super(state, storeUnknown);
        this.state = state;
        reconfigure();
    }

    /** Takes over the state's serializer. */
    void reconfigure() {
        serializer = state.getValueSerializer();
        flusherSerializer = serializer.duplicate();
        immutable = serializer.isImmutableType();
    }

    /** The value, or null. The caller may change it if it gives it back by {@link #put}. */
    V get(K key, N namespace, int group) throws IOException, InterruptedException {
        ValueEntry<K, N, V> entry = load(key, namespace, group);
        if (!immutable) {
            touch(entry);
        }
        return entry.value;
    }

    /** Sets the value, or removes it (null). Never reads. */
    void put(K key, N namespace, int group, V value) throws IOException, InterruptedException {
        long serialized = measure(value); // fails before anything is changed
        int hash = hash(key, namespace);
        ValueEntry<K, N, V> entry = find(key, namespace, hash);
        if (entry == null) {
            entry = new ValueEntry<>(keep(key), keepNamespace(namespace), hash, group);
            entry.absentInStore = knownAbsent(hash);
            insert(entry, sizes.heap(sizes.serialized()));
        } else {
            touch(entry);
        }
        entry.value = value;
        markDirty(entry, serialized + ROW_BYTES);
        charge(entry, sizes.heap(serialized));
    }

    private long measure(V value) throws IOException {
        if (value == null) {
            return 0;
        }
        if (sizes.wantsSample()) {
            DataOutputSerializer out = state.codec(true).startValue();
            state.serialize(serializer, value, out);
            sizes.learnWritten(out.length(), value);
            return out.length();
        }
        return sizes.serialized();
    }

    private ValueEntry<K, N, V> load(K key, N namespace, int group)
            throws IOException, InterruptedException {
        int hash = hash(key, namespace);
        ValueEntry<K, N, V> entry = findOrLoad(key, namespace, hash);
        if (entry != null) {
            return entry;
        }
        entry = new ValueEntry<>(keep(key), keepNamespace(namespace), hash, group);
        boolean expired = false;
        long serialized = 0;
        entry.absentInStore = knownAbsent(hash);
        Answer<K, N> answer = null;
        if (!entry.absentInStore) {
            answer = readAlong(key, namespace, group);
            if (!answer.found(0)) {
                entry.absentInStore = true;
                answeredAbsent();
            } else {
                serialized = answer.rows().valueLength(0);
                entry.value = deserialize(state.filtered(answer.rows(), 0));
                sizes.learnRead(serialized, entry.value);
                expired = entry.value == null;
            }
        }
        insert(entry, sizes.heap(serialized));
        if (expired) {
            removeExpired(entry);
        }
        if (answer != null) {
            takeInAlong(answer);
        }
        return entry;
    }

    @Override
    void takeInRow(K key, N namespace, EntryBatch page, int i)
            throws IOException, InterruptedException {
        if (peek(key, namespace) == null) {
            ValueEntry<K, N, V> entry =
                    new ValueEntry<>(key, namespace, hash(key, namespace), page.group(i));
            entry.absentInStore = page.op(i) == EntryBatch.OP_DELETE;
            if (!entry.absentInStore) {
                entry.value = deserialize(state.filtered(page, i));
                sizes.learnRead(page.valueLength(i), entry.value);
            }
            insert(entry, sizes.heap(page.valueLength(i)));
            if (entry.value == null && !entry.absentInStore) {
                removeExpired(entry);
            }
        }
    }

    /** Flink will not remove what the filter keeps it from seeing. */
    private void removeExpired(ValueEntry<K, N, V> entry) throws IOException, InterruptedException {
        markDirty(entry, ROW_BYTES);
    }

    V deserialize(AbstractNdbState.ValueBytes bytes) throws IOException {
        return bytes == null
                ? null
                : serializer.deserialize(
                        state.codec(true).input(bytes.data, bytes.offset, bytes.length));
    }

    /** The cached value, or null, for a look that is no use of it. Task thread. */
    V cachedAt(K key, N namespace) {
        ValueEntry<K, N, V> entry = peek(key, namespace);
        return entry == null ? null : entry.value;
    }

    @Override
    boolean hasValue(ValueEntry<K, N, V> entry) {
        return entry.value != null;
    }

    @Override
    protected boolean mayBeStored(ValueEntry<K, N, V> entry) {
        return !entry.absentInStore;
    }

    @Override
    protected void write(ValueEntry<K, N, V> entry, WriteSink sink, boolean byTask)
            throws IOException, InterruptedException {
        if (entry.value == null && entry.absentInStore) {
            return; // came and went between two flushes
        }
        RowCodec<K, N> codec = state.codec(byTask);
        DataOutputSerializer key = codec.startKey(entry.key(), entry.namespace());
        if (entry.value == null) {
            sink.add(
                    state.wireIndex(),
                    entry.group(),
                    EntryBatch.OP_DELETE,
                    key.getSharedBuffer(),
                    0,
                    key.length(),
                    NOTHING,
                    0,
                    0);
        } else {
            DataOutputSerializer out = codec.startValue();
            state.serialize(byTask ? serializer : flusherSerializer, entry.value, out);
            sink.add(
                    state.wireIndex(),
                    entry.group(),
                    EntryBatch.OP_PUT,
                    key.getSharedBuffer(),
                    0,
                    key.length(),
                    out.getSharedBuffer(),
                    0,
                    out.length());
        }
        entry.absentInStore = entry.value == null;
    }

    /** For queries, by any thread. */
    byte[] serialized(
            K key, N namespace, int group, RowCodec<K, N> codec, TypeSerializer<V> safeSerializer)
            throws IOException, InterruptedException {
        ValueEntry<K, N, V> entry = peek(key, namespace);
        if (entry == null) {
            return state.readForQuery(group, codec.keyBytes(key, namespace));
        }
        synchronized (entry) {
            if (entry.value == null) {
                return null;
            }
            DataOutputSerializer out = codec.startValue();
            safeSerializer.serialize(entry.value, out);
            return out.getCopyOfBuffer();
        }
    }
}
