package org.flinkndb.state;

import org.flinkndb.cache.CacheEntry;

import java.util.ArrayList;
import java.util.List;

/** What is cached of one list. */
final class ListEntry<K, N, E> extends CacheEntry<K, N> {
    /** The whole list, or null when what the store holds has not been read. */
    List<E> list;

    /** Elements to be appended to what the store holds. Empty while {@link #replaced}. */
    List<E> pending = new ArrayList<>();

    /** Whether the store's row is to be replaced by {@link #list}. */
    boolean replaced;

    /** Whether the row, as of the last change that was sent, is known to be absent. */
    boolean absentInStore;

    ListEntry(K key, N namespace, int hash, int group) {
        super(key, namespace, hash, group);
    }
}
