package org.flinkndb.model;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.IntPredicate;
import java.util.function.Predicate;

/** What the states of {@link TestedBackend} must hold, in plain maps. */
final class StateModel {
    /** A key and a namespace. */
    static String at(int key, int namespace) {
        return key + "/" + namespace;
    }

    final Map<String, String> values = new HashMap<>();
    final Map<String, List<Integer>> lists = new HashMap<>();
    final Map<String, Map<String, Integer>> maps = new HashMap<>();
    final Map<String, Long> sums = new HashMap<>();
    final Map<String, String> joined = new HashMap<>();

    /** Timers by time, then "key/namespace"; the value says nothing. */
    final TreeMap<Long, Map<String, Boolean>> timers = new TreeMap<>();

    StateModel copy() {
        StateModel copy = new StateModel();
        copy.values.putAll(values);
        lists.forEach((at, list) -> copy.lists.put(at, new ArrayList<>(list)));
        maps.forEach((at, map) -> copy.maps.put(at, new HashMap<>(map)));
        copy.sums.putAll(sums);
        copy.joined.putAll(joined);
        timers.forEach((time, set) -> copy.timers.put(time, new HashMap<>(set)));
        return copy;
    }

    /** The part of it at some keys. */
    StateModel within(IntPredicate keys) {
        Predicate<String> elsewhere =
                at -> !keys.test(Integer.parseInt(at.substring(0, at.indexOf('/'))));
        StateModel part = copy();
        for (Map<String, ?> state :
                List.of(part.values, part.lists, part.maps, part.sums, part.joined)) {
            state.keySet().removeIf(elsewhere);
        }
        part.timers.values().forEach(set -> set.keySet().removeIf(elsewhere));
        part.timers.values().removeIf(Map::isEmpty);
        return part;
    }

    boolean addTimer(long time, String at) {
        return timers.computeIfAbsent(time, t -> new HashMap<>()).put(at, true) == null;
    }

    void removeTimer(long time, String at) {
        Map<String, Boolean> set = timers.get(time);
        if (set != null) {
            set.remove(at);
            if (set.isEmpty()) {
                timers.remove(time);
            }
        }
    }

    boolean hasTimer(long time, String at) {
        return timers.containsKey(time) && timers.get(time).containsKey(at);
    }
}
