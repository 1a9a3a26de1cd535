package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.runtime.state.ListDelimitedSerializer;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateSnapshotTransformer;
import org.apache.flink.runtime.state.StateSnapshotTransformer.StateSnapshotTransformFactory;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;

/**
 * Applies what Flink wants done to the values of a full snapshot (leaving expired ones out) to the
 * bytes of rows: when a canonical savepoint is written, and when rows are read, since a native snapshot
 * is not rewritten. Not thread-safe.
 */
public abstract class RowTransformer {
    /**
     * The value to be written: the same array when it stays as it is, null when the row is to be left
     * out.
     */
    public abstract byte[] apply(byte[] value) throws IOException;

    /** The transformer of a state; null when its rows stay as they are. */
    @SuppressWarnings("unchecked")
    public static RowTransformer of(RegisteredKeyValueStateBackendMetaInfo<?, ?> metaInfo) {
        StateSnapshotTransformFactory<?> factory = metaInfo.getStateSnapshotTransformFactory();
        if (metaInfo.getStateType() == StateDescriptor.Type.LIST) {
            return factory.createForDeserializedState()
                    .map(
                            transformer ->
                                    (RowTransformer)
                                            new Elements<>(
                                                    (StateSnapshotTransformer<Object>) transformer,
                                                    ((ListSerializer<Object>)
                                                                    metaInfo.getStateSerializer()
                                                                            .duplicate())
                                                            .getElementSerializer()))
                    .orElse(null);
        }
        Optional<StateSnapshotTransformer<byte[]>> bytes = factory.createForSerializedState();
        if (!bytes.isPresent()) {
            return null;
        }
        return metaInfo.getStateType() == StateDescriptor.Type.MAP
                ? new MapValue(bytes.get())
                : new Plain(bytes.get());
    }

    /** Values as a whole. */
    private static final class Plain extends RowTransformer {
        private final StateSnapshotTransformer<byte[]> transformer;

        private Plain(StateSnapshotTransformer<byte[]> transformer) {
            this.transformer = transformer;
        }

        @Override
        public byte[] apply(byte[] value) {
            return transformer.filterOrTransform(value);
        }
    }

    /** Map values, which stand behind a null flag. */
    private static final class MapValue extends RowTransformer {
        private final StateSnapshotTransformer<byte[]> transformer;

        private MapValue(StateSnapshotTransformer<byte[]> transformer) {
            this.transformer = transformer;
        }

        @Override
        public byte[] apply(byte[] value) {
            if (value[0] != 0) {
                return value;
            }
            byte[] bare = Arrays.copyOfRange(value, 1, value.length);
            byte[] transformed = transformer.filterOrTransform(bare);
            if (transformed == null || transformed == bare) {
                return transformed == null ? null : value;
            }
            byte[] result = new byte[transformed.length + 1];
            System.arraycopy(transformed, 0, result, 1, transformed.length);
            return result;
        }
    }

    /** The elements of a list, one by one. */
    private static final class Elements<E> extends RowTransformer {
        private final StateSnapshotTransformer<E> transformer;
        private final TypeSerializer<E> serializer;
        private final ListDelimitedSerializer lists = new ListDelimitedSerializer();

        private Elements(StateSnapshotTransformer<E> transformer, TypeSerializer<E> serializer) {
            this.transformer = transformer;
            this.serializer = serializer;
        }

        @Override
        public byte[] apply(byte[] value) throws IOException {
            List<E> kept = new ArrayList<>();
            boolean same = true;
            for (E element : lists.deserializeList(value, serializer)) {
                E transformed = transformer.filterOrTransform(element);
                same &= transformed == element;
                if (transformed != null) {
                    kept.add(transformed);
                }
            }
            if (same) {
                return value;
            }
            return kept.isEmpty() ? null : lists.serializeList(kept, serializer);
        }
    }
}
