package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateEntry;
import org.apache.flink.runtime.state.internal.InternalListState;
import org.apache.flink.util.Preconditions;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateAccess;
import org.flinkndb.client.StateKind;

import java.io.IOException;
import java.util.Collection;
import java.util.Collections;
import java.util.List;

/** List state. */
final class NdbListState<K, N, E> extends AbstractNdbState<K, N, List<E>>
        implements InternalListState<K, N, E> {
    private static final byte DELIMITER = ',';

    private final ListCache<K, N, E> cache;

    NdbListState(
            StateContext<K> context,
            StateDescriptor<?, List<E>> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, List<E>> metaInfo,
            boolean knownEmpty) {
        super(context, StateKind.LIST, descriptor, metaInfo);
        cache = new ListCache<>(this, !knownEmpty);
    }

    TypeSerializer<E> elementSerializer() {
        return elementSerializer(getValueSerializer());
    }

    private static <E> TypeSerializer<E> elementSerializer(TypeSerializer<List<E>> serializer) {
        return ((ListSerializer<E>) serializer).getElementSerializer();
    }

    @Override
    public void reconfigure(
            StateDescriptor<?, List<E>> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, List<E>> newInfo) {
        super.reconfigure(descriptor, newInfo);
        cache.reconfigure();
    }

    @Override
    public Iterable<E> get() throws Exception {
        return getInternal();
    }

    @Override
    public List<E> getInternal() throws Exception {
        return cache.get(currentKey(), namespace(), context().currentKeyGroup());
    }

    @Override
    public void add(E element) throws Exception {
        Preconditions.checkNotNull(element, "You cannot add null to a ListState.");
        append(namespace(), Collections.singletonList(element));
    }

    @Override
    public void addAll(List<E> elements) throws Exception {
        checkElements(elements);
        if (!elements.isEmpty()) {
            append(namespace(), elements);
        }
    }

    @Override
    public void update(List<E> elements) throws Exception {
        checkElements(elements);
        replace(namespace(), elements);
    }

    @Override
    public void updateInternal(List<E> elements) throws Exception {
        if (elements == null) {
            clear();
        } else {
            update(elements);
        }
    }

    private static void checkElements(List<?> elements) {
        Preconditions.checkNotNull(elements, "List of values to add cannot be null.");
        for (Object element : elements) {
            Preconditions.checkNotNull(element, "You cannot add null to a ListState.");
        }
    }

    @Override
    public void clear() {
        StateAccess.run(() -> replace(namespace(), Collections.emptyList()));
    }

    @Override
    public void mergeNamespaces(N target, Collection<N> sources) throws Exception {
        if (sources == null) {
            return;
        }
        for (N source : sources) {
            List<E> elements = cache.get(currentKey(), cached(source), context().currentKeyGroup());
            if (elements != null) {
                replace(source, Collections.emptyList());
                append(target, elements);
            }
        }
    }

    private void append(N namespace, List<E> elements) throws IOException, InterruptedException {
        cache.append(currentKey(), cached(namespace), context().currentKeyGroup(), elements);
    }

    private void replace(N namespace, List<E> elements) throws IOException, InterruptedException {
        cache.replace(currentKey(), cached(namespace), context().currentKeyGroup(), elements);
    }

    @Override
    void migrateValue(
            TypeSerializer<List<E>> from,
            TypeSerializer<List<E>> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException {
        boolean first = true;
        while (in.available() > 0) {
            if (!first) {
                out.write(DELIMITER);
            }
            first = false;
            context()
                    .serializers()
                    .migrate(elementSerializer(from), elementSerializer(to), in, out);
            if (in.available() > 0) {
                in.readByte();
            }
        }
    }

    @Override
    StoredCache<K, N, ?> cache() {
        return cache;
    }

    @Override
    List<List<E>> cachedAt(K key, N namespace) {
        List<E> elements = cache.cachedAt(key, namespace);
        return elements == null ? List.of() : List.of(elements);
    }

    @Override
    List<E> valueOfRow(EntryBatch page, int i, ValueBytes bytes) throws IOException {
        return cache.elements(bytes);
    }

    @Override
    void retain(StateEntry<K, N, List<E>> looked, List<E> left)
            throws IOException, InterruptedException {
        K key = looked.getKey();
        cache.replace(key, looked.getNamespace(), groupOf(key), left == null ? List.of() : left);
    }

    @Override
    byte[] serializedValue(
            K key,
            N namespace,
            int group,
            RowCodec<K, N> safeCodec,
            TypeSerializer<List<E>> safeValueSerializer)
            throws Exception {
        return cache.serialized(
                key, namespace, group, safeCodec, elementSerializer(safeValueSerializer));
    }
}
