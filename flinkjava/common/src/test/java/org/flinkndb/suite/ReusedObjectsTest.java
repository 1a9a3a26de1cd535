package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple1;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.internal.InternalKvState;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.Collection;
import java.util.List;

/**
 * Uses one object for all keys, one for all namespaces and one for all map keys, as PyFlink and other
 * callers do that know backends which serialize at once.
 */
class ReusedObjectsTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final int KEYS = 100;
    private static final int KEY_GROUPS = 16;
    private static final TypeInformation<Tuple1<Long>> TYPE = Types.TUPLE(Types.LONG);
    private static final TypeSerializer<Tuple1<Long>> SERIALIZER =
            TYPE.createSerializer(new ExecutionConfig().getSerializerConfig());

    private final JobID job = new JobID();
    private final Tuple1<Long> key = Tuple1.of(0L);
    private final Tuple1<Long> namespace = Tuple1.of(0L);
    private final Tuple1<Long> mapKey = Tuple1.of(0L);

    private AbstractKeyedStateBackend<Tuple1<Long>> backend;
    private ValueState<Long> value;
    private ListState<Long> list;
    private MapState<Tuple1<Long>, Long> map;
    private KeyGroupedInternalPriorityQueue<TimerHeapInternalTimer<Tuple1<Long>, Tuple1<Long>>>
            timers;

    @Test
    void keysNamespacesAndMapKeysMayBeReused() throws Exception {
        open(List.of());
        for (long epoch = 1; epoch <= 2; epoch++) {
            for (long k = 0; k < KEYS; k++) {
                at(k);
                value.update(k * epoch);
                list.add(k * epoch);
                for (long m = 0; m < 3; m++) {
                    mapKey.f0 = m;
                    map.put(mapKey, k * m * epoch);
                }
            }
            verify(epoch);
            Collection<KeyedStateHandle> handles =
                    List.of(TestBackends.handleOf(TestBackends.checkpoint(backend, epoch)));
            close();
            open(handles);
            verify(epoch);
        }
        close();
    }

    @Test
    void keysAndNamespacesOfTimersMayBeReused() throws Exception {
        open(List.of());
        addTimers();
        addTimers(); // set again, which changes nothing
        pollTimers(0, KEYS / 2);
        Collection<KeyedStateHandle> handles =
                List.of(TestBackends.handleOf(TestBackends.checkpoint(backend, 1)));
        pollTimers(KEYS / 2, KEYS);
        assertThat(timers.poll()).isNull();
        close();

        open(handles); // those that fired before the checkpoint are not in the store any more
        for (int group = 0; group < KEY_GROUPS; group++) {
            for (TimerHeapInternalTimer<Tuple1<Long>, Tuple1<Long>> timer :
                    timers.getSubsetForKeyGroup(group)) {
                assertThat(KeyGroupRangeAssignment.assignToKeyGroup(timer.getKey(), KEY_GROUPS))
                        .isEqualTo(group);
            }
        }
        pollTimers(KEYS / 2, KEYS);
        assertThat(timers.poll()).isNull();
        close();
    }

    private void addTimers() {
        for (long k = 0; k < KEYS; k++) {
            key.f0 = k;
            namespace.f0 = k % 7;
            timers.add(new TimerHeapInternalTimer<>(k, key, namespace));
        }
    }

    private void pollTimers(long first, long end) {
        for (long k = first; k < end; k++) {
            TimerHeapInternalTimer<Tuple1<Long>, Tuple1<Long>> timer = timers.poll();
            assertThat(timer).as("timer of %d", k).isNotNull();
            assertThat(timer.getTimestamp()).isEqualTo(k);
            assertThat(timer.getKey()).isEqualTo(Tuple1.of(k));
            assertThat(timer.getNamespace()).isEqualTo(Tuple1.of(k % 7));
        }
    }

    private void verify(long epoch) throws Exception {
        for (long k = 0; k < KEYS; k++) {
            at(k);
            assertThat(value.value()).as("value of %d", k).isEqualTo(k * epoch);
            assertThat(list.get()).as("list of %d", k).last().isEqualTo(k * epoch);
            assertThat(list.get()).as("list of %d", k).hasSize((int) epoch);
            for (long m = 0; m < 3; m++) {
                mapKey.f0 = m;
                assertThat(map.get(mapKey)).as("map of %d", k).isEqualTo(k * m * epoch);
            }
            assertThat(map.keys()).hasSize(3);
        }
    }

    private void at(long k) {
        key.f0 = k;
        backend.setCurrentKey(key);
        namespace.f0 = k % 7;
        for (State state : new State[] {value, list, map}) {
            inNamespace(state).setCurrentNamespace(namespace);
        }
    }

    @SuppressWarnings("unchecked")
    private static InternalKvState<?, Tuple1<Long>, ?> inNamespace(State state) {
        return (InternalKvState<?, Tuple1<Long>, ?>) state;
    }

    private void open(Collection<KeyedStateHandle> handles) throws Exception {
        backend =
                TestBackends.open(
                        SuiteBackends.create(SERVER),
                        job,
                        SERIALIZER,
                        KEY_GROUPS,
                        KeyGroupRange.of(0, KEY_GROUPS - 1),
                        handles);
        value = create(new ValueStateDescriptor<>("value", Types.LONG));
        list = create(new ListStateDescriptor<>("list", Types.LONG));
        map = create(new MapStateDescriptor<>("map", TYPE, Types.LONG));
        timers = backend.create("timers", new TimerSerializer<>(SERIALIZER, SERIALIZER));
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getOrCreateKeyedState(SERIALIZER, descriptor);
    }

    private void close() throws Exception {
        backend.close();
        backend.dispose();
    }
}
