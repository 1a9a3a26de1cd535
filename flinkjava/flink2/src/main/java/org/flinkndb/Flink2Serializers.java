package org.flinkndb;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.base.MapSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializer;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.apache.flink.util.StateMigrationException;
import org.flinkndb.state.SerializerSupport;

import java.io.IOException;

/** Migration of values in Flink 2.x, where time to live may also be switched on or off. */
final class Flink2Serializers implements SerializerSupport {
    private final TtlTimeProvider time;

    Flink2Serializers(TtlTimeProvider time) {
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

    @Override
    public void checkMigration(TypeSerializer<?> from, TypeSerializer<?> to)
            throws StateMigrationException {
        if (from instanceof MapSerializer && to instanceof MapSerializer) {
            checkMapKeys(
                    ((MapSerializer<?, ?>) from).getKeySerializer(),
                    ((MapSerializer<?, ?>) to).getKeySerializer());
        }
    }

    /** Map keys are part of the rows' keys, which stay as they are. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void checkMapKeys(TypeSerializer from, TypeSerializer to)
            throws StateMigrationException {
        TypeSerializerSchemaCompatibility<?> compatibility =
                to.snapshotConfiguration().resolveSchemaCompatibility(from.snapshotConfiguration());
        if (!compatibility.isCompatibleAsIs()
                && !compatibility.isCompatibleWithReconfiguredSerializer()) {
            throw new StateMigrationException(
                    "The new serializer for a MapState requires state migration in order for the"
                        + " job to proceed, since the key schema has changed. However, migration"
                        + " for MapState currently only allows value schema evolutions.");
        }
    }
}
