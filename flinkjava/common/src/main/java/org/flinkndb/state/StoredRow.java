package org.flinkndb.state;

import org.apache.flink.runtime.state.StateEntry;

/** A row of the store as clean-up sees it: of a map it is one entry. Immutable. */
final class StoredRow<K, N, V> implements StateEntry<K, N, V> {
    private final Address<K, N> address;
    private final V value;
    private final int index;

    /**
     * @param value null when the row has expired
     * @param index its place in its page
     */
    StoredRow(Address<K, N> address, V value, int index) {
        this.address = address;
        this.value = value;
        this.index = index;
    }

    @Override
    public K getKey() {
        return address.key();
    }

    @Override
    public N getNamespace() {
        return address.namespace();
    }

    @Override
    public V getState() {
        return value;
    }

    int index() {
        return index;
    }
}
