package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.TestableKeyedStateBackend;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Clean-up of expired rows in the store while most of them are not cached. */
class CleanupTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    /** Holds some dozens of the values here. */
    private static final MemorySize CACHE = MemorySize.parse("64kb");

    private static final long LIFE = 1000;
    private static final int KEYS = 20_000;
    private static final int MAP_KEYS = 500;
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    private long now = 1_000_000;
    private AbstractKeyedStateBackend<Long> backend;

    @BeforeEach
    void open() throws Exception {
        backend = SuiteBackends.openEmpty(SERVER, CACHE, () -> now);
    }

    @AfterEach
    void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    @Test
    void valuesAreRemoved() throws Exception {
        ValueState<Long> values = state(new ValueStateDescriptor<>("value", Types.LONG));
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            values.update(key);
        }
        awaitOneRow(() -> values.update(1L));
    }

    @Test
    void entriesOfMapsAreRemoved() throws Exception {
        MapState<Long, Long> map = state(new MapStateDescriptor<>("map", Types.LONG, Types.LONG));
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key / MAP_KEYS);
            map.put(key, key);
        }
        awaitOneRow(() -> map.put(1L, 1L));
    }

    @Test
    void elementsOfListsAreRemoved() throws Exception {
        ListState<Long> list = state(new ListStateDescriptor<>("list", Types.LONG));
        for (long key = 0; key < KEYS / 10; key++) {
            backend.setCurrentKey(key);
            list.add(1L);
        }
        now += LIFE * 3 / 4;
        backend.setCurrentKey(7L);
        list.add(2L);
        now += LIFE * 3 / 4;
        backend.setCurrentKey(-1L);
        awaitRows(2, () -> list.update(List.of(3L)));
        backend.setCurrentKey(7L);
        long end = System.nanoTime() + TIMEOUT.toNanos();
        now -= LIFE * 3 / 2;
        while (size(list) > 1 && System.nanoTime() < end) {
            now += LIFE * 3 / 2;
            list.get();
            now -= LIFE * 3 / 2;
        }
        assertThat(list.get()).as("what is left of a list").containsExactly(2L);
    }

    /** Map keys that are equal but differ in their bytes are two entries, each with its own time. */
    @Test
    void anEqualMapKeyStays() throws Exception {
        MapState<Texts.Caseless, Long> map =
                state(
                        new MapStateDescriptor<>(
                                "map", new Texts.CaselessSerializer(), LongSerializer.INSTANCE));
        backend.setCurrentKey(7L);
        map.put(new Texts.Caseless("k"), 1L);
        map.put(new Texts.Caseless("K"), 2L);
        now += LIFE * 3 / 4;
        map.put(new Texts.Caseless("k"), 3L);
        now += LIFE / 2;
        backend.setCurrentKey(-1L);
        awaitRows(2, () -> map.put(new Texts.Caseless("other"), 4L));
        backend.setCurrentKey(7L);
        assertThat(map.get(new Texts.Caseless("k"))).as("the living entry").isEqualTo(3L);
        assertThat(map.get(new Texts.Caseless("K"))).as("the expired entry").isNull();
    }

    /** What the task sets and evicts between the request for a page and the look at it must stay. */
    @ParameterizedTest
    @ValueSource(longs = {1, 2})
    void whatIsSetMeanwhileStays(long seed) throws Exception {
        ValueState<String> values = state(new ValueStateDescriptor<>("value", Types.STRING));
        MapState<Long, String> map =
                state(new MapStateDescriptor<>("map", Types.LONG, Types.STRING));
        Map<Long, Long> valuesSet = new HashMap<>();
        Map<Long, Long> entriesSet = new HashMap<>();
        Random random = new Random(seed);
        String padding = "x".repeat(300);
        for (int i = 0; i < 15_000; i++) {
            now += random.nextInt(2);
            long key = random.nextInt(2_000);
            backend.setCurrentKey(key);
            boolean alive = now < valuesSet.getOrDefault(key, 0L) + LIFE;
            assertThat(values.value() != null).as("value of %d at %d", key, i).isEqualTo(alive);
            if (random.nextInt(4) > 0) {
                values.update(i + padding);
                valuesSet.put(key, now);
            }
            backend.setCurrentKey(key / 50);
            alive = now < entriesSet.getOrDefault(key, 0L) + LIFE;
            assertThat(map.contains(key)).as("entry of %d at %d", key, i).isEqualTo(alive);
            if (random.nextInt(4) > 0) {
                map.put(key, i + padding);
                entriesSet.put(key, now);
            }
            if (i % 1_000 == 0) {
                TestBackends.handleOf(TestBackends.checkpoint(backend, 1 + i));
            }
        }
    }

    private static int size(ListState<?> list) throws Exception {
        int size = 0;
        for (Object ignored : list.get()) {
            size++;
        }
        return size;
    }

    private interface Action {
        void run() throws Exception;
    }

    /** Everything expires; then one row is set over and over. */
    private void awaitOneRow(Action action) throws Exception {
        now += 2 * LIFE;
        backend.setCurrentKey(-1L);
        awaitRows(1, action);
    }

    private void awaitRows(int wanted, Action action) throws Exception {
        long end = System.nanoTime() + TIMEOUT.toNanos();
        long rows;
        do {
            for (int i = 0; i < 10_000; i++) {
                action.run();
            }
            rows = ((TestableKeyedStateBackend<?>) backend).numKeyValueStateEntries();
        } while (rows > wanted && System.nanoTime() < end);
        assertThat(rows).as("rows").isEqualTo(wanted);
    }

    private <S extends State> S state(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.enableTimeToLive(
                StateTtlConfig.newBuilder(Duration.ofMillis(LIFE))
                        .cleanupIncrementally(5, false)
                        .build());
        return SuiteBackends.state(backend, descriptor);
    }
}
