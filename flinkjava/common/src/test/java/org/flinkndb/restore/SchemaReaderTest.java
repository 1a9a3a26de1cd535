package org.flinkndb.restore;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.KeyedBackendSerializationProxy;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StateSerializerProvider;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.util.StateMigrationException;
import org.junit.jupiter.api.Test;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** Schemas as a damaged or hostile server might hand them out. */
class SchemaReaderTest {
    private static byte[] schema() throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(128);
        new KeyedBackendSerializationProxy<>(
                        LongSerializer.INSTANCE,
                        List.of(
                                new RegisteredKeyValueStateBackendMetaInfo<>(
                                                StateDescriptor.Type.VALUE,
                                                "state",
                                                VoidNamespaceSerializer.INSTANCE,
                                                StringSerializer.INSTANCE)
                                        .snapshot()),
                        false)
                .write(out);
        return out.getCopyOfBuffer();
    }

    private static void read(byte[] schema) throws IOException, StateMigrationException {
        new SchemaReader<>(
                        SchemaReaderTest.class.getClassLoader(),
                        StateSerializerProvider.fromNewRegisteredSerializer(
                                LongSerializer.INSTANCE))
                .read(List.of(schema));
    }

    @Test
    void damagedSchemasAreRefused() throws Exception {
        byte[] good = schema();
        read(good);
        long seed = Long.getLong("flinkndb.seed", System.nanoTime());
        System.out.println("damaged schemas: repeat with -Dflinkndb.seed=" + seed);
        Random random = new Random(seed);
        int refused = 0;
        for (int i = 0; i < 2_000; i++) {
            byte[] bad =
                    Arrays.copyOf(
                            good,
                            random.nextInt(4) == 0 ? random.nextInt(good.length) : good.length);
            for (int n = random.nextInt(4); n >= 0 && bad.length > 0; n--) {
                bad[random.nextInt(bad.length)] = (byte) random.nextInt(256);
            }
            try {
                read(bad); // other content may be valid
            } catch (IOException | StateMigrationException e) {
                assertThat(e.getMessage()).isNotBlank();
                refused++;
            }
        }
        assertThat(refused).isPositive();
    }
}
