package org.flinkndb.state;

import org.apache.flink.runtime.state.StateEntry;

/** A row of the store as clean-up sees it: of a map it is one entry. Immutable. */
final class StoredRow<K, N, V> implements StateEntry<K, N, V> {
    private final K key;
    private final N namespace;
    private final V value;
    private final int group;
    private final int index;

    /**
     * @param value null when the row has expired
     * @param index its place in its page
     */
    StoredRow(K key, N namespace, V value, int group, int index) {
        this.key = key;
        this.namespace = namespace;
        this.value = value;
        this.group = group;
        this.index = index;
    }

    @Override
    public K getKey() {
        return key;
    }

    @Override
    public N getNamespace() {
        return namespace;
    }

    @Override
    public V getState() {
        return value;
    }

    int group() {
        return group;
    }

    int index() {
        return index;
    }
}
