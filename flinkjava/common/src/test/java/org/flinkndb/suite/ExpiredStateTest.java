package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.TestableKeyedStateBackend;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.time.Duration;
import java.util.Collection;
import java.util.List;

/**
 * Expired rows leave the store also when reads filter them. That they are gone, and do not just stay
 * unseen, shows when the clock is set back.
 */
class ExpiredStateTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final int KEYS = 300;

    private static final long LIFE = 1000;
    private static final long START = 1_000_000;
    private static final Duration TIMEOUT = Duration.ofSeconds(30);

    private final JobID job = new JobID();
    private long now = START;
    private NdbOptions.Recovery recovery = NdbOptions.Recovery.LAZY;
    private StateTtlConfig ttl = filteredOnly();
    private long checkpoint;
    private AbstractKeyedStateBackend<Long> backend;

    @BeforeEach
    void begin() throws Exception {
        open(List.of());
    }

    @AfterEach
    void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    @Test
    void valuesAreRemovedWhenTheyAreRead() throws Exception {
        ValueState<Long> values = restoredValues(KEYS);
        assertThat(rows()).as("rows before").isEqualTo(KEYS);
        now += 2 * LIFE;
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            assertThat(values.value()).as("expired value").isNull();
        }
        assertThat(rows()).as("rows after").isZero();
    }

    @Test
    void anExpiredValueThatIsSetAgainStays() throws Exception {
        ValueState<Long> values = values();
        backend.setCurrentKey(1L);
        values.update(1L);
        restore();
        values = values();
        now += 2 * LIFE;
        backend.setCurrentKey(1L);
        assertThat(values.value()).as("expired value").isNull();
        values.update(2L);
        restore();
        backend.setCurrentKey(1L);
        assertThat(values().value()).as("new value").isEqualTo(2);
    }

    @Test
    void eagerRecoveryRemovesThem() throws Exception {
        ValueState<Long> values = values();
        MapState<Integer, Long> map = map();
        ListState<Long> list = list();
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            values.update(key);
            map.put(1, key);
            list.add(key);
        }
        recovery = NdbOptions.Recovery.EAGER;
        now += 2 * LIFE;
        restore();
        values = values();
        map = map();
        list = list();
        long end = System.nanoTime() + TIMEOUT.toNanos();
        for (long key = KEYS; rows() > 0 && System.nanoTime() < end; key++) {
            backend.setCurrentKey(key); // a look-up that misses takes a page in
            values.value();
            map.get(1);
            list.get();
        }
        assertThat(rows()).as("rows").isZero();
    }

    @Test
    void elementsOfListsAreRemovedWhenTheyAreRead() throws Exception {
        ListState<Long> list = list();
        backend.setCurrentKey(1L);
        list.add(1L);
        now += LIFE / 2;
        list.add(2L);
        restore();
        list = list();
        backend.setCurrentKey(1L);
        now += LIFE * 3 / 4;
        list.add(3L); // pending when the rest is read
        assertThat(list.get()).as("live elements").containsExactly(2L, 3L);
        restore();
        backend.setCurrentKey(1L);
        now = START;
        assertThat(list().get()).as("elements in the store").containsExactly(2L, 3L);
    }

    @Test
    void aListThatExpiredAsAWholeIsRemovedWhenItIsRead() throws Exception {
        backend.setCurrentKey(1L);
        list().add(1L);
        restore();
        ListState<Long> list = list();
        now += 2 * LIFE;
        backend.setCurrentKey(1L);
        assertThat(list.get()).as("live elements").isEmpty();
        assertThat(rows()).as("rows").isZero();
    }

    @Test
    void mapEntriesAreRemovedWhenTheyAreReadOneByOne() throws Exception {
        MapState<Integer, Long> map = restoredMapWithOneOldHalf();
        for (int i = 0; i < KEYS; i++) {
            map.contains(i);
        }
        assertOnlyLiveEntriesAreLeft();
    }

    @Test
    void mapEntriesAreRemovedWhenTheMapIsWalkedThrough() throws Exception {
        MapState<Integer, Long> map = restoredMapWithOneOldHalf();
        assertThat(map.keys()).as("live keys").hasSize(KEYS / 2);
        assertOnlyLiveEntriesAreLeft();
    }

    @ParameterizedTest
    @EnumSource(
            value = NdbOptions.Recovery.class,
            names = {"LAZY", "EAGER"})
    void cleanUpInTheBackgroundRemovesRowsThatNobodyReads(NdbOptions.Recovery recovery)
            throws Exception {
        this.recovery = recovery;
        ttl = StateTtlConfig.newBuilder(Duration.ofMillis(LIFE)).cleanupFullSnapshot().build();
        ValueState<Long> values = restoredValues(KEYS);
        now += 10 * LIFE;
        backend.setCurrentKey((long) KEYS);
        long end = System.nanoTime() + TIMEOUT.toNanos();
        long rows = KEYS;
        while (rows > 1 && System.nanoTime() < end) {
            for (int i = 0; i < 10_000; i++) {
                values.update(1L);
            }
            rows = rows();
        }
        assertThat(rows).as("rows").isEqualTo(1);
    }

    /** Each of the first keys has itself as value. */
    private ValueState<Long> restoredValues(int keys) throws Exception {
        ValueState<Long> values = values();
        for (long key = 0; key < keys; key++) {
            backend.setCurrentKey(key);
            values.update(key);
        }
        restore();
        return values();
    }

    /** Entries of odd keys are expired. */
    private MapState<Integer, Long> restoredMapWithOneOldHalf() throws Exception {
        MapState<Integer, Long> map = map();
        backend.setCurrentKey(1L);
        for (int i = 1; i < KEYS; i += 2) {
            map.put(i, 1L);
        }
        now += 2 * LIFE;
        for (int i = 0; i < KEYS; i += 2) {
            map.put(i, 1L);
        }
        restore();
        backend.setCurrentKey(1L);
        return map();
    }

    private void assertOnlyLiveEntriesAreLeft() throws Exception {
        restore();
        backend.setCurrentKey(1L);
        MapState<Integer, Long> map = map();
        now = START;
        for (int i = 0; i < KEYS; i++) {
            assertThat(map.contains(i)).as("entry %d", i).isEqualTo(i % 2 == 0);
        }
    }

    private long rows() {
        return ((TestableKeyedStateBackend<?>) backend).numKeyValueStateEntries();
    }

    private ValueState<Long> values() throws Exception {
        return create(new ValueStateDescriptor<>("value", LongSerializer.INSTANCE));
    }

    private ListState<Long> list() throws Exception {
        return create(new ListStateDescriptor<>("list", LongSerializer.INSTANCE));
    }

    private MapState<Integer, Long> map() throws Exception {
        return create(
                new MapStateDescriptor<>("map", IntSerializer.INSTANCE, LongSerializer.INSTANCE));
    }

    /** Nothing but the filter finds expired rows. */
    private static StateTtlConfig filteredOnly() {
        return StateTtlConfig.newBuilder(Duration.ofMillis(LIFE))
                .cleanupFullSnapshot()
                .disableCleanupInBackground()
                .build();
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.enableTimeToLive(ttl);
        return SuiteBackends.state(backend, descriptor);
    }

    private void restore() throws Exception {
        KeyedStateHandle handle =
                TestBackends.handleOf(TestBackends.checkpoint(backend, ++checkpoint));
        close();
        open(List.of(handle));
    }

    private void open(Collection<KeyedStateHandle> handles) throws Exception {
        backend =
                SuiteBackends.open(SuiteBackends.create(SERVER, recovery), job, handles, () -> now);
    }
}
