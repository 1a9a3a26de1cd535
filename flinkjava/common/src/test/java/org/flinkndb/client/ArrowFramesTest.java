package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.UInt1Vector;
import org.apache.arrow.vector.UInt2Vector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.util.Arrays;
import java.util.List;
import java.util.Random;

/** Our frames against those of arrow-java, both ways, and against damaged bytes. */
class ArrowFramesTest {
    private static final Schema SCHEMA =
            new Schema(
                    List.of(
                            field("state", new ArrowType.Int(16, false)),
                            field("group", new ArrowType.Int(16, false)),
                            field("op", new ArrowType.Int(8, false)),
                            field("key", ArrowType.Binary.INSTANCE),
                            field("value", ArrowType.Binary.INSTANCE)));

    private static Field field(String name, ArrowType type) {
        return new Field(name, FieldType.notNullable(type), null);
    }

    private static EntryBatch random(int rows, Random random) {
        EntryBatch batch = new EntryBatch();
        for (int i = 0; i < rows; i++) {
            byte[] key = new byte[random.nextInt(30)];
            byte[] value = new byte[random.nextInt(5) == 0 ? random.nextInt(3000) : 0];
            random.nextBytes(key);
            random.nextBytes(value);
            batch.add(
                    random.nextInt(65536),
                    random.nextInt(32768),
                    (byte) random.nextInt(5),
                    key,
                    value);
        }
        return batch;
    }

    private static void assertSame(EntryBatch found, EntryBatch expected) {
        assertThat(found.size()).isEqualTo(expected.size());
        for (int i = 0; i < expected.size(); i++) {
            assertThat(found.state(i)).isEqualTo(expected.state(i));
            assertThat(found.group(i)).isEqualTo(expected.group(i));
            assertThat(found.op(i)).isEqualTo(expected.op(i));
            assertThat(found.key(i)).isEqualTo(expected.key(i));
            assertThat(found.value(i)).isEqualTo(expected.value(i));
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 7, 8, 9, 1024, 5000})
    void arrowJavaReadsOurFrames(int rows) throws Exception {
        EntryBatch batch = random(rows, new Random(rows));
        byte[] frame = ArrowFrames.encode(batch);
        try (BufferAllocator allocator = new RootAllocator();
                VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator);
                ArrowRecordBatch read =
                        (ArrowRecordBatch)
                                MessageSerializer.deserializeMessageBatch(
                                        new ReadChannel(
                                                Channels.newChannel(
                                                        new ByteArrayInputStream(frame))),
                                        allocator)) {
            new VectorLoader(root).load(read);
            assertThat(root.getRowCount()).isEqualTo(rows);
            for (int i = 0; i < rows; i++) {
                assertThat((int) ((UInt2Vector) root.getVector(0)).get(i))
                        .isEqualTo(batch.state(i));
                assertThat((int) ((UInt2Vector) root.getVector(1)).get(i))
                        .isEqualTo(batch.group(i));
                assertThat(((UInt1Vector) root.getVector(2)).get(i)).isEqualTo(batch.op(i));
                assertThat(((VarBinaryVector) root.getVector(3)).get(i)).isEqualTo(batch.key(i));
                assertThat(((VarBinaryVector) root.getVector(4)).get(i)).isEqualTo(batch.value(i));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(ints = {0, 1, 7, 8, 9, 1024, 5000})
    void weReadFramesOfArrowJava(int rows) throws Exception {
        EntryBatch batch = random(rows, new Random(rows));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (BufferAllocator allocator = new RootAllocator();
                VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator)) {
            root.allocateNew();
            for (int i = 0; i < rows; i++) {
                ((UInt2Vector) root.getVector(0)).setSafe(i, batch.state(i));
                ((UInt2Vector) root.getVector(1)).setSafe(i, batch.group(i));
                ((UInt1Vector) root.getVector(2)).setSafe(i, batch.op(i));
                ((VarBinaryVector) root.getVector(3)).setSafe(i, batch.key(i));
                ((VarBinaryVector) root.getVector(4)).setSafe(i, batch.value(i));
            }
            root.setRowCount(rows);
            try (ArrowRecordBatch record = new VectorUnloader(root).getRecordBatch()) {
                MessageSerializer.serialize(new WriteChannel(Channels.newChannel(out)), record);
            }
        }
        assertSame(ArrowFrames.decode(ByteBuffer.wrap(out.toByteArray())), batch);
    }

    @Test
    void damagedFramesAreRefused() throws Exception {
        long seed = Long.getLong("flinkndb.seed", System.nanoTime());
        System.out.println("damaged frames: repeat with -Dflinkndb.seed=" + seed);
        Random random = new Random(seed);
        byte[] good = ArrowFrames.encode(random(20, random));
        for (int cut = 0; cut < good.length; cut++) {
            byte[] part = Arrays.copyOf(good, cut);
            assertThatThrownBy(() -> ArrowFrames.decode(ByteBuffer.wrap(part)))
                    .isInstanceOf(IOException.class);
        }
        for (int i = 0; i < 100_000; i++) {
            byte[] bad = good.clone();
            for (int n = random.nextInt(4); n >= 0; n--) {
                bad[random.nextInt(bad.length)] = (byte) random.nextInt(256);
            }
            try {
                ArrowFrames.decode(ByteBuffer.wrap(bad)); // other content may be valid
            } catch (IOException e) {
                assertThat(e).hasMessageContaining("Arrow frame");
            }
        }
    }
}
