package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.array.BytePrimitiveArraySerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.util.ExceptionUtils;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.testutil.ImmutableSerializer;
import org.flinkndb.testutil.ServerProcess;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;

/**
 * Values and keys of the largest size and one byte more, as Flink's user meets them: the error names
 * state, size and limit, and another operator goes on.
 */
@Timeout(120)
class SizeLimitsTest {
    private static final int LIMIT = 3 << 20;

    @TempDir private static Path folder;
    private static ServerProcess server;

    private AbstractKeyedStateBackend<Long> backend;
    private AbstractKeyedStateBackend<Long> other;

    @BeforeAll
    static void start() throws Exception {
        server =
                ServerProcess.start(
                        folder, "memory:", List.of("--max-value-bytes", Integer.toString(LIMIT)));
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @BeforeEach
    void open() throws Exception {
        backend = openBackend();
        other = openBackend();
    }

    /** Demands that the other operator has not noticed anything. */
    @AfterEach
    void close() throws Exception {
        ValueState<Long> state = state(other, new ValueStateDescriptor<>("n", Long.class));
        other.setCurrentKey(1L);
        state.update(7L);
        TestBackends.handleOf(TestBackends.checkpoint(other, 9));
        assertThat(state.value()).isEqualTo(7L);
        other.dispose();
        backend.dispose();
    }

    private static AbstractKeyedStateBackend<Long> openBackend() throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", server.address());
        return TestBackends.open(
                new NdbStateBackend()
                        .configure(configuration, SizeLimitsTest.class.getClassLoader()),
                new JobID(),
                LongSerializer.INSTANCE,
                4,
                KeyGroupRange.of(0, 3),
                Collections.emptyList());
    }

    private static <T> ValueState<T> state(
            AbstractKeyedStateBackend<Long> of, ValueStateDescriptor<T> descriptor)
            throws Exception {
        return of.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }

    /** A value whose serialized form has so many bytes. */
    private static byte[] serializedAs(int bytes) {
        return new byte[bytes - 4]; // a length stands before it
    }

    private void assertRefused(int checkpoint, String... words) {
        assertThatThrownBy(
                        () -> TestBackends.handleOf(TestBackends.checkpoint(backend, checkpoint)))
                .satisfies(
                        failure ->
                                assertThat(ExceptionUtils.stringifyException(failure))
                                        .contains(words));
    }

    @Test
    void aValueAtTheLimitIsKept() throws Exception {
        ValueState<byte[]> state = large("large");
        backend.setCurrentKey(1L);
        state.update(serializedAs(LIMIT));
        TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
        assertThat(state.value()).hasSize(LIMIT - 4);
    }

    @Test
    void aValueAboveTheLimitFailsTheCheckpoint() throws Exception {
        ValueState<byte[]> state = large("large");
        backend.setCurrentKey(1L);
        state.update(serializedAs(LIMIT + 1));
        assertRefused(1, "'large'", Integer.toString(LIMIT + 1), LIMIT + " (", "--max-value-bytes");
        backend.setCurrentKey(2L);
        assertThatThrownBy(
                        () -> {
                            state.update(new byte[1]);
                            TestBackends.handleOf(TestBackends.checkpoint(backend, 2));
                        })
                .as("what was refused must not be left out of a later checkpoint")
                .isInstanceOf(Exception.class);
    }

    @Test
    void aListThatGrowsAboveTheLimitFailsTheTask() throws Exception {
        ListState<byte[]> list = longList();
        backend.setCurrentKey(1L);
        for (int checkpoint = 1; checkpoint <= 3; checkpoint++) {
            list.add(serializedAs(LIMIT / 3 - 1));
            TestBackends.handleOf(TestBackends.checkpoint(backend, checkpoint));
        }
        list.add(serializedAs(10));
        assertRefused(4, "\"long\"", Integer.toString(LIMIT), "--max-value-bytes");
    }

    @Test
    void aListAboveTheLimitIsNotSerializedAsAWhole() throws Exception {
        ListState<byte[]> list = longList();
        backend.setCurrentKey(1L);
        byte[] element = serializedAs(1 << 20);
        list.update(Collections.nCopies(8, element));
        assertRefused(1, "'long'", Integer.toString(LIMIT), "--max-value-bytes");
    }

    @Test
    void aKeyAboveTheLimitIsRefused() throws Exception {
        var map =
                backend.getPartitionedState(
                        VoidNamespace.INSTANCE,
                        VoidNamespaceSerializer.INSTANCE,
                        new MapStateDescriptor<>(
                                "keys",
                                BytePrimitiveArraySerializer.INSTANCE,
                                IntSerializer.INSTANCE));
        backend.setCurrentKey(1L);
        map.put(new byte[(1 << 20) + 1], 1);
        assertRefused(1, "'keys'", "a key of", Integer.toString(1 << 20));
    }

    @Test
    void aValueOfTwoGibibytesIsRefused() throws Exception {
        ValueState<Integer> state =
                state(backend, new ValueStateDescriptor<>("huge", new EndlessSerializer()));
        backend.setCurrentKey(1L);
        assertThatThrownBy(
                        () -> {
                            state.update(1);
                            TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
                        })
                .satisfies(
                        failure ->
                                assertThat(ExceptionUtils.stringifyException(failure))
                                        .contains("huge", "bytes"));
    }

    private ValueState<byte[]> large(String name) throws Exception {
        return state(
                backend, new ValueStateDescriptor<>(name, BytePrimitiveArraySerializer.INSTANCE));
    }

    private ListState<byte[]> longList() throws Exception {
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE,
                VoidNamespaceSerializer.INSTANCE,
                new ListStateDescriptor<>("long", BytePrimitiveArraySerializer.INSTANCE));
    }

    /** Writes two gibibytes for each value, or as much as the heap takes. */
    public static final class EndlessSerializer extends ImmutableSerializer<Integer> {
        private static final byte[] PIECE = new byte[64 << 20];

        @Override
        public void serialize(Integer record, DataOutputView target) throws IOException {
            for (long written = 0; written < 2L << 30; written += PIECE.length) {
                target.write(PIECE);
            }
        }

        @Override
        public Integer createInstance() {
            return 0;
        }

        @Override
        public Integer deserialize(DataInputView source) throws IOException {
            throw new IOException("nothing was written");
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            throw new IOException("nothing was written");
        }

        @Override
        public TypeSerializerSnapshot<Integer> snapshotConfiguration() {
            return new Snapshot();
        }

        /** Of {@link EndlessSerializer}. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Integer> {
            public Snapshot() {
                super(EndlessSerializer::new);
            }
        }
    }
}
