package org.flinkndb.state;

import org.flinkndb.cache.CacheEntry;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What is cached of one map. */
final class MapEntry<K, N, UK, UV> extends CacheEntry<K, N> {
    /** There can be millions of maps, and most have few entries: joins have a map for each key. */
    private static final int FEW = 2;

    /** What is known of map keys, by what {@link MapKeys} says: all of them if {@link #complete}. */
    final Map<Object, Slot<UK, UV>> slots = new LinkedHashMap<>(FEW);

    /** Map keys that are not here have no value. */
    boolean complete;

    /** Whether all rows of the map are to be removed before the slots' changes. */
    boolean cleared;

    private List<Slot<UK, UV>> changed = Collections.emptyList();

    MapEntry(K key, N namespace, int hash, int group) {
        super(key, namespace, hash, group);
    }

    /** Notes that a slot has a change to send. */
    void addChanged(Slot<UK, UV> slot) {
        if (changed.isEmpty()) {
            changed = new ArrayList<>(FEW);
        }
        changed.add(slot);
    }

    /** The slots with a change to send, which none has afterwards. */
    List<Slot<UK, UV>> takeChanged() {
        List<Slot<UK, UV>> taken = changed;
        changed = Collections.emptyList();
        return taken;
    }

    /** What is known of one map key. */
    static final class Slot<UK, UV> {
        final UK key;
        UV value;
        boolean present;
        boolean changed;

        /** Whether the row, as of the last change that was sent, is known to be absent. */
        boolean absentInStore;

        Slot(UK key) {
            this.key = key;
        }
    }
}
