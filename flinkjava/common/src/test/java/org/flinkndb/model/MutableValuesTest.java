package org.flinkndb.model;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.RunnableFuture;

/**
 * A job that gets an object from a state, changes another state, changes the object and gives it back,
 * as jobs do within one record, while the flusher serializes what earlier records left: before the
 * barrier, ahead of it, and after it. Nothing may be torn, and each snapshot holds what it must.
 */
class MutableValuesTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final int KEYS = 1_500;
    private static final int STEPS = 9_000;
    private static final int STEPS_IN_EPOCH = 500;
    private static final int KEY_GROUPS = 16;
    private static final String PADDING = "x".repeat(200);

    private final JobID job = new JobID();
    private final ExecutorService snapshots = Executors.newSingleThreadExecutor();

    private AbstractKeyedStateBackend<Long> backend;
    private ValueState<Pair> value;
    private ValueState<String> padding;
    private MapState<Long, Pair> map;

    @ParameterizedTest
    @ValueSource(strings = {"4kb", "256kb", "64mb"})
    void nothingIsTorn(String dirtyBytes) throws Exception {
        long seed = System.nanoTime();
        try {
            run(new Random(seed), dirtyBytes);
        } catch (Exception | AssertionError e) {
            throw new AssertionError("seed " + seed, e);
        } finally {
            snapshots.shutdownNow();
        }
    }

    private void run(Random random, String dirtyBytes) throws Exception {
        open(List.of(), dirtyBytes);
        Map<Long, Pair> model = new HashMap<>();
        for (int step = 1; step <= STEPS; step++) {
            // Mostly one key after the other, so that changes are sent ahead; sometimes one of the
            // last, which the flusher may be about to serialize.
            long key = (step - (random.nextInt(6) == 0 ? random.nextInt(20) : 0) + KEYS) % KEYS;
            change(key, step);
            model.computeIfAbsent(key, k -> new Pair()).set(step);
            if (step % STEPS_IN_EPOCH == 0) {
                Map<Long, Pair> expected = copy(model);
                Future<KeyedStateHandle> snapshot = snapshot(step);
                if (random.nextInt(4) == 0) {
                    KeyedStateHandle handle = snapshot.get();
                    close();
                    open(List.of(handle), dirtyBytes);
                    verify(expected);
                }
            }
        }
        verify(model);
        close();
    }

    private void change(long key, long number) throws Exception {
        backend.setCurrentKey(key);
        Pair pair = value.value() == null ? new Pair() : value.value();
        Pair ofMap = map.get(key % 3) == null ? new Pair() : map.get(key % 3);
        padding.update(PADDING);
        pair.set(number);
        ofMap.set(number);
        map.put(key % 3, ofMap);
        value.update(pair);
    }

    private void verify(Map<Long, Pair> model) throws Exception {
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            assertThat(value.value()).as("value of %d", key).isEqualTo(model.get(key));
            assertThat(map.get(key % 3)).as("map of %d", key).isEqualTo(model.get(key));
        }
    }

    private static Map<Long, Pair> copy(Map<Long, Pair> model) {
        Map<Long, Pair> copy = new HashMap<>();
        model.forEach((key, pair) -> copy.put(key, pair.copy()));
        return copy;
    }

    private void open(Collection<KeyedStateHandle> handles, String dirtyBytes) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", SERVER.address());
        configuration.setString("state.backend.ndb.write.max-dirty-bytes", dirtyBytes);
        backend =
                TestBackends.open(
                        new NdbStateBackendFactory()
                                .createFromConfig(configuration, getClass().getClassLoader()),
                        job,
                        LongSerializer.INSTANCE,
                        KEY_GROUPS,
                        KeyGroupRange.of(0, KEY_GROUPS - 1),
                        handles);
        value = create(new ValueStateDescriptor<>("value", new PairSerializer()));
        padding = create(new ValueStateDescriptor<>("padding", Types.STRING));
        map =
                create(
                        new MapStateDescriptor<>(
                                "map", LongSerializer.INSTANCE, new PairSerializer()));
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }

    private Future<KeyedStateHandle> snapshot(long id) throws Exception {
        RunnableFuture<SnapshotResult<KeyedStateHandle>> future =
                TestBackends.checkpoint(backend, id);
        return snapshots.submit(() -> TestBackends.handleOf(future));
    }

    private void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    /** Two numbers that are the same whenever the job is not just changing them. */
    private static final class Pair {
        private long first;
        private long second;
        private long changes;

        void set(long number) {
            first = number;
            changes++;
            Thread.yield(); // lets the flusher see a torn pair, if it may
            second = number;
        }

        Pair copy() {
            Pair copy = new Pair();
            copy.first = first;
            copy.second = second;
            copy.changes = changes;
            return copy;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Pair
                    && ((Pair) other).first == first
                    && ((Pair) other).second == second
                    && ((Pair) other).changes == changes;
        }

        @Override
        public int hashCode() {
            return Objects.hash(first, second, changes);
        }

        @Override
        public String toString() {
            return first + ", " + second + " after " + changes;
        }
    }

    /** Fails when it sees a torn pair. */
    public static final class PairSerializer extends TypeSerializerSingleton<Pair> {
        private static final long serialVersionUID = 1L;

        @Override
        public boolean isImmutableType() {
            return false;
        }

        @Override
        public Pair createInstance() {
            return new Pair();
        }

        @Override
        public Pair copy(Pair from) {
            return from.copy();
        }

        @Override
        public Pair copy(Pair from, Pair reuse) {
            return from.copy();
        }

        @Override
        public int getLength() {
            return 3 * Long.BYTES;
        }

        @Override
        public void serialize(Pair pair, DataOutputView target) throws IOException {
            target.writeLong(pair.second);
            Thread.yield();
            target.writeLong(pair.changes);
            target.writeLong(pair.first);
            if (pair.first != pair.second) {
                throw new IOException("torn: " + pair);
            }
        }

        @Override
        public Pair deserialize(DataInputView source) throws IOException {
            Pair pair = new Pair();
            pair.second = source.readLong();
            pair.changes = source.readLong();
            pair.first = source.readLong();
            return pair;
        }

        @Override
        public Pair deserialize(Pair reuse, DataInputView source) throws IOException {
            return deserialize(source);
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            target.write(source, getLength());
        }

        @Override
        public TypeSerializerSnapshot<Pair> snapshotConfiguration() {
            return new PairSerializerSnapshot();
        }
    }

    /** There is one format only. */
    public static final class PairSerializerSnapshot extends SimpleTypeSerializerSnapshot<Pair> {
        public PairSerializerSnapshot() {
            super(PairSerializer::new);
        }
    }
}
