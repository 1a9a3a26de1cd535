package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Set;

/**
 * What the slots of a map state are found by, so that two map keys are the same if, and only if, their
 * bytes are, as in backends that serialize at once: the map keys themselves where {@code equals} says
 * just that, otherwise their bytes. Arrays are equal to nothing but themselves, sets to others with
 * the same elements in another order, and objects of users are equal as these like it. For the task
 * thread.
 */
final class MapKeys<UK> {
    private static final String SQL = "org.apache.flink.table.runtime.typeutils.";

    /**
     * Serializers of SQL, which need not be on the class path. What they give back is equal as its bytes
     * are; what a job made may be of another class.
     */
    private static final Set<String> STORED_FORM_IS_EQUAL_AS_BYTES_ARE =
            Set.of(
                    SQL + "BinaryRowDataSerializer",
                    SQL + "RowDataSerializer",
                    SQL + "StringDataSerializer");

    private final TypeSerializer<UK> serializer;
    private final StoredForm<UK> storedForm;
    private final DataOutputSerializer out = new DataOutputSerializer(64);

    MapKeys(TypeSerializer<UK> serializer) {
        this.serializer = serializer;
        this.storedForm = areFoundByBytes(serializer) ? null : new StoredForm<>(serializer);
    }

    private static boolean areFoundByBytes(TypeSerializer<?> serializer) {
        return !StoredForm.isEqualAsBytesAre(serializer)
                && !STORED_FORM_IS_EQUAL_AS_BYTES_ARE.contains(serializer.getClass().getName());
    }

    /** What the slot of a map key is found by. */
    Object of(UK userKey) throws IOException {
        if (storedForm != null) {
            return storedForm.of(userKey);
        }
        out.clear();
        serializer.serialize(userKey, out);
        return ByteBuffer.wrap(out.getCopyOfBuffer());
    }

    /** The same as an object that is not the caller's, who may change it: made of the slot's own map key. */
    Object kept(Object at, UK ownKey) throws IOException {
        return at instanceof ByteBuffer ? at : of(ownKey);
    }

    /** Bytes of heap that it takes beside the map key. */
    static int heapBytes(Object at) {
        return at instanceof ByteBuffer ? 64 + ((ByteBuffer) at).limit() : 0;
    }
}
