package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.CompositeKeySerializationUtils;
import org.apache.flink.util.FlinkRuntimeException;
import org.flinkndb.client.EntryBatch;

import java.io.IOException;
import java.util.Arrays;
import java.util.stream.Stream;

/**
 * The keys and namespaces that have a value in a state, whether or not its object was made since the
 * restore. The streams see what was changed before they were made, survive later changes, and must be
 * closed.
 */
public final class StateKeys<K, N> {
    private final StateContext<K> context;
    private final int wireIndex;
    private final TypeSerializer<N> namespaceSerializer;
    private final RowCodec<K, N> codec;
    private final RowCodec<K, N> prefixCodec;

    public StateKeys(
            StateContext<K> context, int wireIndex, TypeSerializer<N> namespaceSerializer) {
        this.context = context;
        this.wireIndex = wireIndex;
        this.namespaceSerializer = namespaceSerializer.duplicate();
        this.codec = new RowCodec<>(context.keySerializer().duplicate(), this.namespaceSerializer);
        this.prefixCodec =
                new RowCodec<>(
                        context.keySerializer().duplicate(), namespaceSerializer.duplicate());
    }

    /** Keys with a value in a namespace. */
    public Stream<K> keys(N namespace) {
        byte[] wanted = namespaceBytes(namespace);
        return KeyStreams.of(
                RowScan.ofState(context, wireIndex, true),
                (rows, i) -> {
                    DataInputDeserializer in =
                            codec.input(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
                    K key = codec.readKey(in);
                    int start = in.getPosition();
                    codec.readNamespace(in);
                    int end = in.getPosition();
                    boolean match =
                            Arrays.equals(rows.keyData(), start, end, wanted, 0, wanted.length);
                    return match ? key : null;
                },
                this::prefixLength);
    }

    /** All keys and namespaces with a value. */
    public Stream<Tuple2<K, N>> keysAndNamespaces() {
        return KeyStreams.of(
                RowScan.ofState(context, wireIndex, true),
                (rows, i) -> {
                    DataInputDeserializer in =
                            codec.input(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
                    return Tuple2.of(codec.readKey(in), codec.readNamespace(in));
                },
                this::prefixLength);
    }

    /** Where key and namespace end in a row's key: the rows of one map have this much in common. */
    private int prefixLength(EntryBatch rows, int i) throws IOException {
        DataInputDeserializer in =
                prefixCodec.input(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
        prefixCodec.readKey(in);
        prefixCodec.readNamespace(in);
        return in.getPosition() - rows.keyOffset(i);
    }

    private byte[] namespaceBytes(N namespace) {
        try {
            DataOutputSerializer out = new DataOutputSerializer(32);
            CompositeKeySerializationUtils.writeNameSpace(
                    namespace,
                    namespaceSerializer,
                    out,
                    CompositeKeySerializationUtils.isAmbiguousKeyPossible(
                            context.keySerializer(), namespaceSerializer));
            return out.getCopyOfBuffer();
        } catch (IOException e) {
            throw new FlinkRuntimeException("Cannot serialize a namespace.", e);
        }
    }
}
