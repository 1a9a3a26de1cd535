package org.flinkndb.restore;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.runtime.state.KeyedBackendSerializationProxy;
import org.apache.flink.runtime.state.StateSerializerProvider;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.util.StateMigrationException;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** Reads the schemas of the snapshots that a session was opened on, and checks the key serializer. */
public final class SchemaReader<K> {
    private final ClassLoader userClassLoader;
    private final StateSerializerProvider<K> keySerializer;
    private boolean checked;

    public SchemaReader(ClassLoader userClassLoader, StateSerializerProvider<K> keySerializer) {
        this.userClassLoader = userClassLoader;
        this.keySerializer = keySerializer;
    }

    /** Returns what the schemas say of states. */
    public List<StateMetaInfoSnapshot> read(List<byte[]> schemas)
            throws IOException, StateMigrationException {
        List<StateMetaInfoSnapshot> metaInfos = new ArrayList<>();
        for (byte[] schema : schemas) {
            KeyedBackendSerializationProxy<K> proxy =
                    new KeyedBackendSerializationProxy<>(userClassLoader);
            read(proxy, schema);
            check(proxy);
            metaInfos.addAll(proxy.getStateMetaInfoSnapshots());
        }
        return metaInfos;
    }

    private static void read(KeyedBackendSerializationProxy<?> proxy, byte[] schema)
            throws IOException {
        try {
            proxy.read(new DataInputDeserializer(schema));
        } catch (IOException | RuntimeException | OutOfMemoryError e) {
            // Flink makes room for as many entries as damaged bytes say there are. It would end the
            // TaskManager for that error, though the memory is free again.
            throw new IOException(
                    "The schema of a snapshot ("
                            + schema.length
                            + " bytes) cannot be read: "
                            + e.getMessage(),
                    e);
        }
    }

    private void check(KeyedBackendSerializationProxy<K> proxy) throws StateMigrationException {
        if (checked) {
            return;
        }
        TypeSerializer<K> current = keySerializer.currentSchemaSerializer();
        TypeSerializerSchemaCompatibility<K> compatibility =
                keySerializer.setPreviousSerializerSnapshotForRestoredState(
                        proxy.getKeySerializerSnapshot());
        if (compatibility.isCompatibleAfterMigration() || compatibility.isIncompatible()) {
            throw new StateMigrationException(
                    "The new key serializer ("
                            + current
                            + ") must be compatible with the one before ("
                            + keySerializer.previousSchemaSerializer()
                            + ").");
        }
        checked = true;
    }
}
