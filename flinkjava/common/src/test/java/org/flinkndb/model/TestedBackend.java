package org.flinkndb.model;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.internal.InternalKvState;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.flinkndb.testutil.TestBackends;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A keyed state backend with one state of every kind and a timer queue. */
final class TestedBackend implements AutoCloseable {
    static final int KEY_GROUPS = 16;

    private static final String[] STATES = {"value", "list", "map", "sum", "joined"};

    final AbstractKeyedStateBackend<Integer> backend;
    final ValueState<String> value;
    final ListState<Integer> list;
    final MapState<String, Integer> map;
    final ReducingState<Long> sum;
    final AggregatingState<String, String> joined;
    final KeyGroupedInternalPriorityQueue<TimerHeapInternalTimer<Integer, Integer>> timers;

    TestedBackend(StateBackend factory, JobID job, Collection<KeyedStateHandle> handles)
            throws Exception {
        this(factory, job, KeyGroupRange.of(0, KEY_GROUPS - 1), handles);
    }

    /** One of several subtasks. */
    TestedBackend(
            StateBackend factory,
            JobID job,
            KeyGroupRange range,
            Collection<KeyedStateHandle> handles)
            throws Exception {
        backend =
                TestBackends.open(factory, job, IntSerializer.INSTANCE, KEY_GROUPS, range, handles);
        value = create(new ValueStateDescriptor<>("value", Types.STRING));
        list = create(new ListStateDescriptor<>("list", Types.INT));
        map = create(new MapStateDescriptor<>("map", Types.STRING, Types.INT));
        sum = create(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
        joined = create(new AggregatingStateDescriptor<>("joined", new Join(), Types.STRING));
        timers =
                backend.create(
                        "timers",
                        new TimerSerializer<>(IntSerializer.INSTANCE, IntSerializer.INSTANCE));
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getOrCreateKeyedState(IntSerializer.INSTANCE, descriptor);
    }

    /** Goes to a key and, for all states, a namespace. */
    void at(int key, int namespace) {
        backend.setCurrentKey(key);
        for (State state : new State[] {value, list, map, sum, joined}) {
            inNamespace(state).setCurrentNamespace(namespace);
        }
    }

    @SuppressWarnings("unchecked")
    static InternalKvState<Integer, Integer, ?> inNamespace(State state) {
        return (InternalKvState<Integer, Integer, ?>) state;
    }

    /** Compares everything that can be read with the model. */
    void verify(StateModel whole, int keys, int namespaces) throws Exception {
        StateModel model = whole.within(this::isOurs);
        for (int key = 0; key < keys; key++) {
            for (int namespace = 0; isOurs(key) && namespace < namespaces; namespace++) {
                verifyAt(model, key, namespace);
            }
        }
        List<Set<String>> expected =
                List.of(
                        model.values.keySet(),
                        model.lists.keySet(),
                        model.maps.keySet(),
                        model.sums.keySet(),
                        model.joined.keySet());
        for (int i = 0; i < STATES.length; i++) {
            assertThat(keysAndNamespaces(STATES[i])).as(STATES[i]).isEqualTo(expected.get(i));
        }
        verifyTimers(model);
    }

    private boolean isOurs(int key) {
        return backend.getKeyGroupRange()
                .contains(KeyGroupRangeAssignment.assignToKeyGroup(key, KEY_GROUPS));
    }

    private void verifyAt(StateModel model, int key, int namespace) throws Exception {
        at(key, namespace);
        String at = StateModel.at(key, namespace);
        assertThat(value.value()).as("value " + at).isEqualTo(model.values.get(at));
        assertThat(listed(list.get())).as("list " + at).isEqualTo(model.lists.get(at));
        assertThat(entries()).as("map " + at).isEqualTo(model.maps.getOrDefault(at, Map.of()));
        assertThat(map.isEmpty()).as("map " + at).isEqualTo(!model.maps.containsKey(at));
        assertThat(sum.get()).as("sum " + at).isEqualTo(model.sums.get(at));
        assertThat(joined.get()).as("joined " + at).isEqualTo(model.joined.get(at));
    }

    static List<Integer> listed(Iterable<Integer> elements) {
        if (elements == null) {
            return null;
        }
        List<Integer> all = new ArrayList<>();
        elements.forEach(all::add);
        return all.isEmpty() ? null : all;
    }

    Map<String, Integer> entries() throws Exception {
        Map<String, Integer> entries = new HashMap<>();
        for (Map.Entry<String, Integer> entry : map.entries()) {
            assertThat(entries).doesNotContainKey(entry.getKey());
            entries.put(entry.getKey(), entry.getValue());
        }
        return entries;
    }

    private Set<String> keysAndNamespaces(String state) {
        try (Stream<Tuple2<Integer, Integer>> all = backend.getKeysAndNamespaces(state)) {
            List<String> list =
                    all.map(at -> StateModel.at(at.f0, at.f1)).collect(Collectors.toList());
            Set<String> set = new HashSet<>(list);
            assertThat(list).as("each key once in " + state).hasSize(set.size());
            return set;
        }
    }

    private void verifyTimers(StateModel model) {
        Set<String> found = new HashSet<>();
        for (int group : backend.getKeyGroupRange()) {
            timers.getSubsetForKeyGroup(group)
                    .forEach(
                            t ->
                                    found.add(
                                            t.getTimestamp()
                                                    + "@"
                                                    + StateModel.at(t.getKey(), t.getNamespace())));
        }
        Set<String> expected = new HashSet<>();
        model.timers.forEach(
                (time, set) -> set.keySet().forEach(at -> expected.add(time + "@" + at)));
        assertThat(found).as("timers").isEqualTo(expected);
        assertThat(timers.size()).as("number of timers").isEqualTo(expected.size());
    }

    @Override
    public void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    /** Joins what is added by dots. */
    static final class Join implements AggregateFunction<String, String, String> {
        private static final long serialVersionUID = 1L;

        @Override
        public String createAccumulator() {
            return "";
        }

        @Override
        public String add(String more, String soFar) {
            return soFar + more;
        }

        @Override
        public String getResult(String soFar) {
            return soFar;
        }

        @Override
        public String merge(String left, String right) {
            return left + right;
        }
    }
}
