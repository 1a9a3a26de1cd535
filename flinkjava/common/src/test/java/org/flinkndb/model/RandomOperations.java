package org.flinkndb.model;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.runtime.state.internal.InternalListState;
import org.apache.flink.runtime.state.internal.InternalReducingState;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;

/** Does the same random things to a backend and to its model, and compares the answers. */
final class RandomOperations {
    static final int KEYS = 40;
    static final int NAMESPACES = 3;
    private static final int MAP_KEYS = 12;

    private final Random random;
    private final boolean nullsInMaps;

    RandomOperations(Random random, boolean nullsInMaps) {
        this.random = random;
        this.nullsInMaps = nullsInMaps;
    }

    void step(TestedBackend b, StateModel m) throws Exception {
        int key = random.nextInt(KEYS);
        int namespace = random.nextInt(NAMESPACES);
        b.at(key, namespace);
        String at = StateModel.at(key, namespace);
        switch (random.nextInt(6)) {
            case 0:
                value(b, m, at);
                break;
            case 1:
                list(b, m, key, namespace);
                break;
            case 2:
            case 3:
                map(b, m, at);
                break;
            case 4:
                aggregates(b, m, key, namespace);
                break;
            default:
                timers(b, m, key, namespace);
        }
    }

    private void value(TestedBackend b, StateModel m, String at) throws Exception {
        switch (random.nextInt(4)) {
            case 0:
                b.value.clear();
                m.values.remove(at);
                break;
            case 1:
                assertThat(b.value.value()).isEqualTo(m.values.get(at));
                break;
            default:
                String text = text(random.nextInt(50) == 0 ? 20_000 : 300);
                b.value.update(text);
                m.values.put(at, text);
        }
    }

    private String text(int maxLength) {
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(maxLength); i >= 0; i--) {
            text.append((char) ('a' + random.nextInt(26)));
        }
        return text.toString();
    }

    private void list(TestedBackend b, StateModel m, int key, int namespace) throws Exception {
        String at = StateModel.at(key, namespace);
        List<Integer> numbers = new ArrayList<>();
        for (int i = random.nextInt(4); i >= 0; i--) {
            numbers.add(random.nextInt(1000));
        }
        switch (random.nextInt(8)) {
            case 0:
                b.list.clear();
                m.lists.remove(at);
                break;
            case 1:
                assertThat(TestedBackend.listed(b.list.get())).isEqualTo(m.lists.get(at));
                break;
            case 2:
                b.list.update(numbers);
                m.lists.put(at, numbers);
                break;
            case 3:
                mergeLists(b, m, key, namespace);
                break;
            case 4:
                b.list.addAll(numbers);
                m.lists.computeIfAbsent(at, x -> new ArrayList<>()).addAll(numbers);
                break;
            default:
                b.list.add(numbers.get(0));
                m.lists.computeIfAbsent(at, x -> new ArrayList<>()).add(numbers.get(0));
        }
    }

    @SuppressWarnings("unchecked")
    private void mergeLists(TestedBackend b, StateModel m, int key, int namespace)
            throws Exception {
        int source = (namespace + 1) % NAMESPACES;
        ((InternalListState<Integer, Integer, Integer>) b.list)
                .mergeNamespaces(namespace, List.of(source));
        List<Integer> moved = m.lists.remove(StateModel.at(key, source));
        if (moved != null) {
            m.lists
                    .computeIfAbsent(StateModel.at(key, namespace), x -> new ArrayList<>())
                    .addAll(moved);
        }
    }

    private void map(TestedBackend b, StateModel m, String at) throws Exception {
        String mapKey = "m" + random.nextInt(MAP_KEYS);
        Map<String, Integer> expected = m.maps.getOrDefault(at, Map.of());
        switch (random.nextInt(12)) {
            case 0:
                b.map.clear();
                m.maps.remove(at);
                break;
            case 1:
                assertThat(b.map.get(mapKey)).isEqualTo(expected.get(mapKey));
                break;
            case 2:
                assertThat(b.map.contains(mapKey)).isEqualTo(expected.containsKey(mapKey));
                break;
            case 3:
                assertThat(b.entries()).isEqualTo(expected);
                break;
            case 4:
                assertThat(b.map.isEmpty()).isEqualTo(expected.isEmpty());
                break;
            case 5:
            case 6:
                b.map.remove(mapKey);
                edit(m, at).remove(mapKey);
                tidy(m, at);
                break;
            case 7:
                iterateAndChange(b, m, at);
                break;
            default:
                boolean isNull = nullsInMaps && random.nextInt(10) == 0;
                Integer number = isNull ? null : random.nextInt(1000);
                b.map.put(mapKey, number);
                edit(m, at).put(mapKey, number);
        }
    }

    private static Map<String, Integer> edit(StateModel m, String at) {
        return m.maps.computeIfAbsent(at, x -> new HashMap<>());
    }

    private static void tidy(StateModel m, String at) {
        if (m.maps.containsKey(at) && m.maps.get(at).isEmpty()) {
            m.maps.remove(at);
        }
    }

    private void iterateAndChange(TestedBackend b, StateModel m, String at) throws Exception {
        Iterator<Map.Entry<String, Integer>> entries = b.map.iterator();
        while (entries.hasNext()) {
            Map.Entry<String, Integer> entry = entries.next();
            if (random.nextInt(3) == 0) {
                entries.remove();
                edit(m, at).remove(entry.getKey());
            } else if (random.nextInt(3) == 0) {
                int number = random.nextInt(1000);
                entry.setValue(number);
                edit(m, at).put(entry.getKey(), number);
            }
        }
        tidy(m, at);
    }

    private void aggregates(TestedBackend b, StateModel m, int key, int namespace)
            throws Exception {
        String at = StateModel.at(key, namespace);
        long number = random.nextInt(1000);
        switch (random.nextInt(8)) {
            case 0:
                b.sum.clear();
                m.sums.remove(at);
                break;
            case 1:
                assertThat(b.sum.get()).isEqualTo(m.sums.get(at));
                break;
            case 2:
                mergeSums(b, m, key, namespace);
                break;
            case 3:
                b.joined.clear();
                m.joined.remove(at);
                break;
            case 4:
                assertThat(b.joined.get()).isEqualTo(m.joined.get(at));
                break;
            default:
                b.sum.add(number);
                m.sums.merge(at, number, Long::sum);
                b.joined.add("." + number);
                m.joined.merge(at, "." + number, String::concat);
        }
    }

    @SuppressWarnings("unchecked")
    private void mergeSums(TestedBackend b, StateModel m, int key, int namespace) throws Exception {
        int source = (namespace + 1) % NAMESPACES;
        ((InternalReducingState<Integer, Integer, Long>) b.sum)
                .mergeNamespaces(namespace, List.of(source));
        Long moved = m.sums.remove(StateModel.at(key, source));
        if (moved != null) {
            m.sums.merge(StateModel.at(key, namespace), moved, Long::sum);
        }
    }

    private void timers(TestedBackend b, StateModel m, int key, int namespace) {
        long time = random.nextInt(100_000);
        String at = StateModel.at(key, namespace);
        switch (random.nextInt(5)) {
            case 0:
                b.timers.remove(new TimerHeapInternalTimer<>(time, key, namespace));
                m.removeTimer(time, at);
                break;
            case 1:
                removeKnown(b, m);
                break;
            case 2:
                poll(b, m);
                break;
            default:
                b.timers.add(new TimerHeapInternalTimer<>(time, key, namespace));
                m.addTimer(time, at);
        }
    }

    private void removeKnown(TestedBackend b, StateModel m) {
        Long time = m.timers.ceilingKey((long) random.nextInt(100_000));
        if (time != null) {
            String at = m.timers.get(time).keySet().iterator().next();
            String[] parts = at.split("/");
            b.timers.remove(
                    new TimerHeapInternalTimer<>(
                            time, Integer.parseInt(parts[0]), Integer.parseInt(parts[1])));
            m.removeTimer(time, at);
        }
    }

    private static void poll(TestedBackend b, StateModel m) {
        TimerHeapInternalTimer<Integer, Integer> head = b.timers.peek();
        assertThat(b.timers.poll()).isEqualTo(head);
        if (head == null) {
            assertThat(m.timers).isEmpty();
            return;
        }
        assertThat(head.getTimestamp()).isEqualTo(m.timers.firstKey());
        String at = StateModel.at(head.getKey(), head.getNamespace());
        assertThat(m.hasTimer(head.getTimestamp(), at)).isTrue();
        m.removeTimer(head.getTimestamp(), at);
    }
}
