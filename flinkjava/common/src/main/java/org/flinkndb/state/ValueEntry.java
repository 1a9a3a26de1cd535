package org.flinkndb.state;

import org.flinkndb.cache.CacheEntry;

/** A cached value; null = the key has none. */
final class ValueEntry<K, N, V> extends CacheEntry<K, N> {
    /** Guarded by the monitor for other threads than the task's. */
    V value;

    /** Whether the row, as of the last change that was sent, is known to be absent. */
    boolean absentInStore;

    ValueEntry(K key, N namespace, int hash, int group) {
        super(key, namespace, hash, group);
    }
}
