package org.flinkndb;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.flinkndb.state.SerializerSupport;

import java.io.IOException;

/** Migration of values in Flink 1.20, where time to live cannot be switched on or off. */
final class FlinkSerializers implements SerializerSupport {
    /** The time is for the sake of the other lines. */
    FlinkSerializers(TtlTimeProvider time) {}

    @Override
    public <V> void migrate(
            TypeSerializer<V> from,
            TypeSerializer<V> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException {
        to.serialize(from.deserialize(in), out);
    }
}
