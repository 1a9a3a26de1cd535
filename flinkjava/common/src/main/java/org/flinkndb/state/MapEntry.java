package org.flinkndb.state;

import org.flinkndb.cache.CacheEntry;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What is cached of one map. */
final class MapEntry<K, N, UK, UV> extends CacheEntry<K, N> {
    /** What is known of map keys: all of them if {@link #complete}. */
    final Map<UK, Slot<UV>> slots = new LinkedHashMap<>();

    /** Map keys that are not here have no value. */
    boolean complete;

    /** Whether all rows of the map are to be removed before the slots' changes. */
    boolean cleared;

    /** Map keys with a change to send. */
    List<UK> changed = new ArrayList<>();

    MapEntry(K key, N namespace, int hash, int group) {
        super(key, namespace, hash, group);
    }

    /** What is known of one map key. */
    static final class Slot<UV> {
        UV value;
        boolean present;
        boolean changed;

        /** Whether the row, as of the last change that was sent, is known to be absent. */
        boolean absentInStore;
    }
}
