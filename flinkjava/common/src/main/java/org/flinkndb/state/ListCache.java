package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.ListDelimitedSerializer;
import org.flinkndb.cache.WriteSink;
import org.flinkndb.client.EntryBatch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The cache of a list state. Adding never reads: the store appends. */
final class ListCache<K, N, E> extends StoredCache<K, N, ListEntry<K, N, E>> {
    private static final byte[] NOTHING = new byte[0];
    private static final byte DELIMITER = ',';
    private static final int CHECKED_BYTES = 1 << 20;

    private final NdbListState<K, N, E> state;
    private final SizeEstimate sizes = new SizeEstimate();
    private TypeSerializer<E> serializer;
    private volatile TypeSerializer<E> flusherSerializer;
    private boolean immutable;

    ListCache(NdbListState<K, N, E> state, boolean storeUnknown) {
        super(state, storeUnknown);
        this.state = state;
        reconfigure();
    }

    void reconfigure() {
        serializer = state.elementSerializer();
        flusherSerializer = serializer.duplicate();
        immutable = serializer.isImmutableType();
    }

    /** A copy of the list, or null when it is empty. */
    List<E> get(K key, N namespace, int group) throws IOException, InterruptedException {
        ListEntry<K, N, E> entry = entry(key, namespace, group);
        if (entry.list == null) {
            read(entry);
        }
        if (!immutable) {
            touch(entry);
        }
        return entry.list.isEmpty() ? null : new ArrayList<>(entry.list);
    }

    void append(K key, N namespace, int group, List<E> elements)
            throws IOException, InterruptedException {
        long serialized = measure(elements); // fails before anything is changed
        ListEntry<K, N, E> entry = entry(key, namespace, group);
        touch(entry);
        if (entry.list != null) {
            entry.list.addAll(elements);
        }
        if (!entry.replaced) {
            entry.pending.addAll(elements);
        }
        markDirty(entry, serialized + ROW_BYTES, serialized);
        grow(entry, sizes.content(serialized));
    }

    /** Replaces the list; an empty one removes it. */
    void replace(K key, N namespace, int group, List<E> elements)
            throws IOException, InterruptedException {
        long serialized = measure(elements); // fails before anything is changed
        ListEntry<K, N, E> entry = entry(key, namespace, group);
        touch(entry);
        entry.list = new ArrayList<>(elements);
        entry.pending.clear();
        entry.replaced = true;
        markDirty(entry, serialized + ROW_BYTES);
        charge(entry, sizes.heap(serialized));
    }

    private long measure(List<E> elements) throws IOException {
        long serialized = 0;
        for (E element : elements) {
            serialized += measure(element);
        }
        return serialized;
    }

    private long measure(E element) throws IOException {
        if (!sizes.wantsSample()) {
            return sizes.serialized();
        }
        DataOutputSerializer out = state.codec(true).startValue();
        state.serialize(serializer, element, out);
        sizes.learnWritten(out.length(), element);
        return out.length();
    }

    private ListEntry<K, N, E> entry(K key, N namespace, int group)
            throws IOException, InterruptedException {
        makeRoom();
        int hash = hash(key, namespace);
        ListEntry<K, N, E> entry = findOrLoad(key, namespace, hash);
        if (entry == null) {
            entry = new ListEntry<>(keep(key), keepNamespace(namespace), hash, group);
            if (knownAbsent(hash)) {
                entry.list = new ArrayList<>();
                entry.absentInStore = true;
            }
            insert(entry, sizes.heap(0));
        }
        return entry;
    }

    /** Reads what the store holds and adds what is pending. */
    private void read(ListEntry<K, N, E> entry) throws IOException, InterruptedException {
        if (mayBeOnItsWay(entry)) {
            writeBehind().awaitSealed(); // appends of ended epochs must have been sent
        }
        Answer<K, N> answer = readAlong(entry.key(), entry.namespace(), entry.group());
        EntryBatch row = answer.found(0) ? answer.rows() : null;
        if (row == null) {
            answeredAbsent();
        }
        AbstractNdbState.ValueBytes bytes = row == null ? null : state.filtered(row, 0);
        List<E> list = elements(bytes);
        list.addAll(entry.pending);
        entry.list = list;
        if (entry.pending.isEmpty()) {
            entry.absentInStore = row == null;
        }
        grow(entry, row == null ? 0 : sizes.content(row.valueLength(0)));
        if (row != null && lostElements(bytes)) {
            replaceExpired(entry, bytes);
        }
        takeInAlong(answer);
    }

    private static boolean lostElements(AbstractNdbState.ValueBytes bytes) {
        return bytes == null || !bytes.asStored;
    }

    /** Flink will not remove elements that the filter keeps it from seeing. */
    private void replaceExpired(ListEntry<K, N, E> entry, AbstractNdbState.ValueBytes kept)
            throws IOException, InterruptedException {
        touch(entry);
        entry.pending.clear(); // the list has them
        entry.replaced = true;
        long serialized = kept == null ? 0 : kept.length;
        markDirty(entry, serialized + ROW_BYTES, serialized);
    }

    List<E> elements(AbstractNdbState.ValueBytes bytes) throws IOException {
        List<E> list = new ArrayList<>();
        if (bytes != null) {
            DataInputDeserializer in =
                    state.codec(true).input(bytes.data, bytes.offset, bytes.length);
            while (in.available() > 0) {
                list.add(ListDelimitedSerializer.deserializeNextElement(in, serializer));
            }
        }
        return list;
    }

    @Override
    void takeInRow(K key, N namespace, EntryBatch page, int i)
            throws IOException, InterruptedException {
        if (peek(key, namespace) == null) {
            ListEntry<K, N, E> entry =
                    new ListEntry<>(key, namespace, hash(key, namespace), page.group(i));
            entry.absentInStore = page.op(i) == EntryBatch.OP_DELETE;
            AbstractNdbState.ValueBytes bytes =
                    entry.absentInStore ? null : state.filtered(page, i);
            entry.list = elements(bytes);
            insert(entry, sizes.heap(page.valueLength(i)));
            if (!entry.absentInStore && lostElements(bytes)) {
                replaceExpired(entry, bytes);
            }
        }
    }

    private void grow(ListEntry<K, N, E> entry, long by) {
        charge(entry, chargeOf(entry) + by);
    }

    /** The cached list if it is known and not empty, for a look that is no use of it. Task thread. */
    List<E> cachedAt(K key, N namespace) {
        ListEntry<K, N, E> entry = peek(key, namespace);
        return entry == null || !hasValue(entry) ? null : Collections.unmodifiableList(entry.list);
    }

    @Override
    boolean hasValue(ListEntry<K, N, E> entry) {
        return entry.list != null && !entry.list.isEmpty();
    }

    @Override
    protected boolean mayBeStored(ListEntry<K, N, E> entry) {
        return !entry.absentInStore;
    }

    @Override
    protected void write(ListEntry<K, N, E> entry, WriteSink sink, boolean byTask)
            throws IOException, InterruptedException {
        if (entry.replaced) {
            boolean empty = entry.list.isEmpty();
            if (!empty) {
                send(entry, EntryBatch.OP_PUT, entry.list, sink, byTask);
            } else if (!entry.absentInStore) {
                send(entry, EntryBatch.OP_DELETE, entry.list, sink, byTask);
            }
            entry.absentInStore = empty;
            entry.replaced = false;
        } else if (!entry.pending.isEmpty()) {
            send(entry, EntryBatch.OP_APPEND, entry.pending, sink, byTask);
            entry.absentInStore = false;
        }
        entry.pending = new ArrayList<>();
    }

    private void send(
            ListEntry<K, N, E> entry, byte op, List<E> elements, WriteSink sink, boolean byTask)
            throws IOException, InterruptedException {
        RowCodec<K, N> codec = state.codec(byTask);
        DataOutputSerializer key = codec.startKey(entry.key(), entry.namespace());
        DataOutputSerializer out = codec.startValue();
        writeElements(elements, byTask ? serializer : flusherSerializer, out);
        sink.add(
                state.wireIndex(),
                entry.group(),
                op,
                key.getSharedBuffer(),
                0,
                key.length(),
                elements.isEmpty() ? NOTHING : out.getSharedBuffer(),
                0,
                out.length());
    }

    private void writeElements(
            List<E> elements, TypeSerializer<E> serializer, DataOutputSerializer out)
            throws IOException {
        boolean first = true;
        for (E element : elements) {
            if (!first) {
                out.write(DELIMITER);
            }
            first = false;
            state.serialize(serializer, element, out);
            if (out.length() > CHECKED_BYTES) { // not only when the whole list is there
                state.context().session().checkSize(state.wireIndex(), 0, out.length());
            }
        }
    }

    /** For queries, by any thread. */
    byte[] serialized(
            K key, N namespace, int group, RowCodec<K, N> codec, TypeSerializer<E> safeSerializer)
            throws IOException, InterruptedException {
        ListEntry<K, N, E> entry = peek(key, namespace);
        if (entry != null) {
            synchronized (entry) {
                if (entry.list != null) {
                    if (entry.list.isEmpty()) {
                        return null;
                    }
                    DataOutputSerializer out = codec.startValue();
                    writeElements(new ArrayList<>(entry.list), safeSerializer, out);
                    return out.getCopyOfBuffer();
                }
            }
        }
        return state.readForQuery(group, codec.keyBytes(key, namespace));
    }
}
