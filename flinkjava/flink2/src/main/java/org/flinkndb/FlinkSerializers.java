package org.flinkndb;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializer;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.flinkndb.state.SerializerSupport;

import java.io.IOException;

/** Migration of values in Flink 2.x, where time to live may also be switched on or off. */
final class FlinkSerializers implements SerializerSupport {
    private final TtlTimeProvider time;

    FlinkSerializers(TtlTimeProvider time) {
        this.time = time;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <V> void migrate(
            TypeSerializer<V> from,
            TypeSerializer<V> to,
            DataInputDeserializer in,
            DataOutputSerializer out)
            throws IOException {
        TtlAwareSerializer<V, ?> source =
                (TtlAwareSerializer<V, ?>) TtlAwareSerializer.wrapTtlAwareSerializer(from);
        TtlAwareSerializer<V, ?> target =
                (TtlAwareSerializer<V, ?>) TtlAwareSerializer.wrapTtlAwareSerializer(to);
        target.migrateValueFromPriorSerializer(source, () -> source.deserialize(in), out, time);
    }
}
