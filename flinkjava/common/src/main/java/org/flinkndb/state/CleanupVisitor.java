package org.flinkndb.state;

import org.apache.flink.runtime.state.StateEntry;
import org.apache.flink.runtime.state.internal.InternalKvState.StateIncrementalVisitor;
import org.flinkndb.client.StateAccess;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;

/**
 * Visits the entries of a state a few at a time, for Flink's incremental clean-up of expired values:
 * first those that are cached, then, as far as {@link CleanupScan} allows, those in the store.
 */
final class CleanupVisitor<K, N, V> implements StateIncrementalVisitor<K, N, V> {
    private final Access<K, N, V> access;
    private final Iterator<Address<K, N>> cached;
    private final Stored<K, N, V> stored;
    private final int chunk;

    /** How the visitor reaches what is cached. */
    interface Access<K, N, V> {
        /**
         * What the cache has now, perhaps nothing, of a map each entry by itself; it is neither read
         * nor counted as used.
         */
        List<V> cached(K key, N namespace);

        /** Sets what was looked at to what is left of it; null for nothing. */
        void retain(StateEntry<K, N, V> looked, V left) throws IOException, InterruptedException;
    }

    /** What is looked at when the cached entries have been: {@link CleanupScan}. */
    interface Stored<K, N, V> {
        /** Whether there are rows to be looked at now. */
        boolean hasNext() throws IOException, InterruptedException;

        /** What is to be looked at of the next few rows, perhaps nothing. */
        List<StateEntry<K, N, V>> nextEntries(int rows) throws IOException, InterruptedException;

        /** Sets a row's value to what is left of it; null for nothing. */
        void update(StoredRow<K, N, V> row, V value) throws IOException, InterruptedException;
    }

    CleanupVisitor(
            Access<K, N, V> access, List<Address<K, N>> cached, Stored<K, N, V> stored, int chunk) {
        this.access = access;
        this.cached = cached.iterator();
        this.stored = stored;
        this.chunk = Math.max(1, chunk);
    }

    @Override
    public boolean hasNext() {
        return cached.hasNext() || StateAccess.get(stored::hasNext);
    }

    /**
     * What is found at the next few addresses. When nothing is, Flink goes on at the next access: this
     * one must not take longer because many entries have gone meanwhile.
     */
    @Override
    public Collection<StateEntry<K, N, V>> nextEntries() {
        if (!cached.hasNext()) {
            return StateAccess.get(() -> stored.nextEntries(chunk));
        }
        List<StateEntry<K, N, V>> entries = new ArrayList<>(chunk);
        for (int looks = 0; looks < chunk && entries.size() < chunk && cached.hasNext(); looks++) {
            Address<K, N> at = cached.next();
            for (V value : access.cached(at.key(), at.namespace())) {
                entries.add(new StateEntry.SimpleStateEntry<>(at.key(), at.namespace(), value));
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
        StateAccess.run(
                () -> {
                    if (entry instanceof StoredRow) {
                        stored.update((StoredRow<K, N, V>) entry, newValue);
                    } else {
                        access.retain(entry, newValue);
                    }
                });
    }
}
