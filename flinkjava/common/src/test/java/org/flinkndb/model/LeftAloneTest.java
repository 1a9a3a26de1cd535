package org.flinkndb.model;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.List;

/** What is sent ahead of the barrier is what is left alone, and not what goes on changing. */
class LeftAloneTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final int KEY_GROUPS = 16;
    private static final int NEW_KEYS = 4_000;
    private static final int HOT_KEYS = 16;
    private static final int BYTES = 2_000;

    /** At most, with what the serializer adds to a value. */
    private static final int KEY_BYTES = 28;

    @Test
    void aChangingValueIsSentOnce() throws Exception {
        AbstractKeyedStateBackend<Long> backend = open(List.of());
        ValueState<byte[]> value = value(backend);
        for (long key = 0; key < NEW_KEYS; key++) {
            update(backend, value, key, (byte) key);
            update(backend, value, NEW_KEYS + key % HOT_KEYS, (byte) key);
        }
        KeyedStateHandle handle = TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
        long written = handle.getCheckpointedSize();
        long rows = NEW_KEYS + HOT_KEYS;
        assertThat(written).isBetween(rows * BYTES, rows * (BYTES + KEY_BYTES));
        backend.close();
        backend.dispose();

        backend = open(List.of(handle));
        value = value(backend);
        for (long key = 0; key < NEW_KEYS; key++) {
            backend.setCurrentKey(key);
            assertThat(value.value()).hasSize(BYTES).startsWith((byte) key);
        }
        for (long hot = 0; hot < HOT_KEYS; hot++) {
            backend.setCurrentKey(NEW_KEYS + hot);
            assertThat(value.value()).startsWith((byte) (NEW_KEYS - HOT_KEYS + hot));
        }
        backend.close();
        backend.dispose();
    }

    private static void update(
            AbstractKeyedStateBackend<Long> backend, ValueState<byte[]> value, long key, byte first)
            throws Exception {
        byte[] bytes = new byte[BYTES];
        bytes[0] = first;
        backend.setCurrentKey(key);
        value.update(bytes);
    }

    private AbstractKeyedStateBackend<Long> open(List<KeyedStateHandle> handles) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", SERVER.address());
        // Looks at each 256 KB.
        configuration.setString("state.backend.ndb.write.max-dirty-bytes", "4mb");
        return TestBackends.open(
                new NdbStateBackendFactory()
                        .createFromConfig(configuration, getClass().getClassLoader()),
                new JobID(),
                LongSerializer.INSTANCE,
                KEY_GROUPS,
                KeyGroupRange.of(0, KEY_GROUPS - 1),
                handles);
    }

    private static ValueState<byte[]> value(AbstractKeyedStateBackend<Long> backend)
            throws Exception {
        ValueStateDescriptor<byte[]> descriptor =
                new ValueStateDescriptor<>(
                        "value", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }
}
