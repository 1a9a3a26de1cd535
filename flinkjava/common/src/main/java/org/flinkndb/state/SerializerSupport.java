package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

import java.io.IOException;

/** What differs between Flink lines when values change their serializer. */
public interface SerializerSupport {
    /** Reads one value (list element, map value) from {@code in} and writes it to {@code out}. */
    <V> void migrate(
            TypeSerializer<V> from,
            TypeSerializer<V> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException;
}
