package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** What the next timers will ask for is read along with what this one asks for. */
class ReadAlongTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    /** Holds what is read along, and a small part of the state. */
    private static final MemorySize CACHE = MemorySize.parse("2mb");

    private static final int KEYS = 30_000;
    private static final long TIME = 1_000_000;

    private AbstractKeyedStateBackend<Long> backend;
    private ValueState<Long> value;
    private ValueState<Long> neverSet;
    private ListState<Long> list;
    private MapState<Integer, Long> map;
    private KeyGroupedInternalPriorityQueue<TimerHeapInternalTimer<Long, VoidNamespace>> timers;

    @BeforeEach
    void open() throws Exception {
        backend = SuiteBackends.openEmpty(SERVER, CACHE, TtlTimeProvider.DEFAULT);
        value = state(new ValueStateDescriptor<>("value", Types.LONG));
        neverSet = state(new ValueStateDescriptor<>("neverSet", Types.LONG));
        list = state(new ListStateDescriptor<>("list", Types.LONG));
        map = state(new MapStateDescriptor<>("map", Types.INT, Types.LONG));
        timers =
                backend.create(
                        "timers",
                        new TimerSerializer<>(
                                LongSerializer.INSTANCE, VoidNamespaceSerializer.INSTANCE));
    }

    @AfterEach
    void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    @Test
    void manyTimersAskTheServerSeldom() throws Exception {
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            value.update(key);
            list.add(key);
            map.put(1, key);
            timers.add(new TimerHeapInternalTimer<>(TIME, key, VoidNamespace.INSTANCE));
        }
        TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
        long before = SERVER.server().counter("flinkndb_frame_seconds_count");
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(timers.peek().getKey());
            assertThat(timers.poll().getKey()).as("timer").isEqualTo(key);
            assertThat(value.value()).as("value").isEqualTo(key);
            assertThat(neverSet.value()).as("value that was never set").isNull();
            assertThat(list.get()).as("list").containsExactly(key);
            assertThat(map.get(1)).as("entry").isEqualTo(key);
            value.clear();
            list.clear();
            map.clear();
        }
        assertThat(timers.poll()).as("timer").isNull();
        assertThat(SERVER.server().counter("flinkndb_frame_seconds_count") - before)
                .as("frames, one of which for the page of each map; it would be four for each key")
                .isLessThan(KEYS + KEYS / 2);
    }

    /** Timers set state of their own and of other keys, and timers; what is read stays right. */
    @Test
    void whatIsReadIsRight() throws Exception {
        Map<Long, Long> model = new HashMap<>();
        Random random = new Random(1);
        for (long key = 0; key < KEYS / 3; key++) {
            set(model, key, key);
            timers.add(timer(TIME + random.nextInt(10_000), key));
        }
        int fired = 0;
        for (TimerHeapInternalTimer<Long, VoidNamespace> timer; fired < KEYS; fired++) {
            timer = timers.poll();
            check(model, timer.getKey());
            long other = random.nextInt(KEYS / 3);
            switch (random.nextInt(4)) {
                case 0:
                    set(model, other, fired);
                    break;
                case 1:
                    clear(model, other);
                    break;
                case 2:
                    check(model, other);
                    break;
                default:
                    clear(model, timer.getKey());
            }
            timers.add(timer(timer.getTimestamp() + random.nextInt(20_000), timer.getKey()));
            if (fired % 5_000 == 0) {
                TestBackends.handleOf(TestBackends.checkpoint(backend, 1 + fired));
            }
        }
    }

    private static TimerHeapInternalTimer<Long, VoidNamespace> timer(long time, long key) {
        return new TimerHeapInternalTimer<>(time, key, VoidNamespace.INSTANCE);
    }

    private void set(Map<Long, Long> model, long key, long to) throws Exception {
        backend.setCurrentKey(key);
        value.update(to);
        list.update(List.of(to, to));
        map.put((int) (key % 3), to);
        model.put(key, to);
    }

    private void clear(Map<Long, Long> model, long key) throws Exception {
        backend.setCurrentKey(key);
        value.clear();
        list.clear();
        map.clear();
        model.remove(key);
    }

    private void check(Map<Long, Long> model, long key) throws Exception {
        backend.setCurrentKey(key);
        Long expected = model.get(key);
        assertThat(value.value()).as("value of %d", key).isEqualTo(expected);
        assertThat(list.get())
                .as("list of %d", key)
                .isEqualTo(expected == null ? null : List.of(expected, expected));
        assertThat(map.get((int) (key % 3))).as("entry of %d", key).isEqualTo(expected);
    }

    private <S extends State> S state(StateDescriptor<S, ?> descriptor) throws Exception {
        return SuiteBackends.state(backend, descriptor);
    }
}
