package org.flinkndb.state;

import org.apache.flink.runtime.state.StateEntry;
import org.apache.flink.runtime.state.internal.InternalKvState.StateIncrementalVisitor;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;

/**
 * Visits the entries of a state that were cached when the visit began, a few at a time: Flink's
 * incremental clean-up of expired values calls it at every access, so it must not ask the server.
 * Expired rows that are not cached are filtered when they are read, and left out of canonical
 * savepoints.
 */
final class CacheVisitor<K, N, V> implements StateIncrementalVisitor<K, N, V> {
    private final Access<K, N, V> access;
    private final Iterator<Address<K, N>> addresses;
    private final int chunk;

    /** How the visitor reaches the state. */
    interface Access<K, N, V> {
        V load(K key, N namespace, int group);

        void store(K key, N namespace, int group, V value);

        int groupOf(K key);
    }

    /** Key and namespace of an entry. */
    static final class Address<K, N> {
        private final K key;
        private final N namespace;

        Address(K key, N namespace) {
            this.key = key;
            this.namespace = namespace;
        }
    }

    CacheVisitor(Access<K, N, V> access, List<Address<K, N>> addresses, int chunk) {
        this.access = access;
        this.addresses = addresses.iterator();
        this.chunk = Math.max(1, chunk);
    }

    @Override
    public boolean hasNext() {
        return addresses.hasNext();
    }

    @Override
    public Collection<StateEntry<K, N, V>> nextEntries() {
        List<StateEntry<K, N, V>> entries = new ArrayList<>(chunk);
        while (entries.size() < chunk && addresses.hasNext()) {
            Address<K, N> at = addresses.next();
            V value = access.load(at.key, at.namespace, access.groupOf(at.key));
            if (value != null) {
                entries.add(new StateEntry.SimpleStateEntry<>(at.key, at.namespace, value));
            }
        }
        return entries;
    }

    @Override
    public void remove(StateEntry<K, N, V> entry) {
        update(entry, null);
    }

    @Override
    public void update(StateEntry<K, N, V> entry, V newValue) {
        access.store(
                entry.getKey(), entry.getNamespace(), access.groupOf(entry.getKey()), newValue);
    }
}
