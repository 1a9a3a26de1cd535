package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.base.MapSerializer;
import org.apache.flink.util.StateMigrationException;

/** Refuses migrations that rewriting values cannot do. */
public final class MigrationCheck {
    private MigrationCheck() {}

    /** Map keys are part of the rows' keys, which stay as they are. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    public static void check(TypeSerializer<?> from, TypeSerializer<?> to)
            throws StateMigrationException {
        if (!(from instanceof MapSerializer && to instanceof MapSerializer)) {
            return;
        }
        TypeSerializer before = ((MapSerializer<?, ?>) from).getKeySerializer();
        TypeSerializer now = ((MapSerializer<?, ?>) to).getKeySerializer();
        TypeSerializerSchemaCompatibility<?> compatibility =
                now.snapshotConfiguration()
                        .resolveSchemaCompatibility(before.snapshotConfiguration());
        if (!compatibility.isCompatibleAsIs()
                && !compatibility.isCompatibleWithReconfiguredSerializer()) {
            throw new StateMigrationException(
                    "The new serializer for a MapState requires state migration in order for the"
                        + " job to proceed, since the key schema has changed. However, migration"
                        + " for MapState currently only allows value schema evolutions.");
        }
    }
}
