package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.CompositeKeySerializationUtils;

import java.io.IOException;

/**
 * Serializes row keys (in canonical savepoint bytes, without the key-group prefix) and values. For
 * one thread: it reuses its buffers and has serializers of its own.
 */
final class RowCodec<K, N> {
    /** A larger buffer is not kept for the next value. */
    private static final int LARGE_BUFFER_BYTES = 4 << 20;

    private static final int VALUE_BYTES = 128;

    private final TypeSerializer<K> keySerializer;
    private final TypeSerializer<N> namespaceSerializer;
    private final boolean ambiguous;
    private final DataOutputSerializer key = new DataOutputSerializer(64);
    private DataOutputSerializer value = new DataOutputSerializer(VALUE_BYTES);
    private final DataInputDeserializer input = new DataInputDeserializer();

    RowCodec(TypeSerializer<K> keySerializer, TypeSerializer<N> namespaceSerializer) {
        this.keySerializer = keySerializer;
        this.namespaceSerializer = namespaceSerializer;
        this.ambiguous =
                CompositeKeySerializationUtils.isAmbiguousKeyPossible(
                        keySerializer, namespaceSerializer);
    }

    /** Starts a row key; the map key of a map state may follow. */
    DataOutputSerializer startKey(K k, N namespace) throws IOException {
        key.clear();
        CompositeKeySerializationUtils.writeKey(k, keySerializer, key, ambiguous);
        CompositeKeySerializationUtils.writeNameSpace(
                namespace, namespaceSerializer, key, ambiguous);
        return key;
    }

    /** The started key. */
    DataOutputSerializer key() {
        return key;
    }

    byte[] keyBytes(K k, N namespace) throws IOException {
        return startKey(k, namespace).getCopyOfBuffer();
    }

    /** An empty buffer for a value. */
    DataOutputSerializer startValue() {
        if (value.getSharedBuffer().length > LARGE_BUFFER_BYTES) {
            value = new DataOutputSerializer(VALUE_BYTES);
        }
        value.clear();
        return value;
    }

    /** An input over a part of an array. */
    DataInputDeserializer input(byte[] bytes, int offset, int length) {
        input.setBuffer(bytes, offset, length);
        return input;
    }

    K copyKey(K k) {
        return keySerializer.copy(k);
    }

    N copyNamespace(N namespace) {
        return namespaceSerializer.copy(namespace);
    }

    K readKey(DataInputDeserializer in) throws IOException {
        return CompositeKeySerializationUtils.readKey(keySerializer, in, ambiguous);
    }

    N readNamespace(DataInputDeserializer in) throws IOException {
        return CompositeKeySerializationUtils.readNamespace(namespaceSerializer, in, ambiguous);
    }
}
