package org.flinkndb.state;

import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateAccess;

import java.util.Iterator;
import java.util.NoSuchElementException;

/** The map keys of a map that is too large to be cached as a whole, from the store, page by page. */
final class MapScanIterator<K, N, UK, UV> implements Iterator<UK> {
    private final MapCache<K, N, UK, UV> cache;
    private final MapEntry<K, N, UK, UV> entry;
    private final RowScan rows;
    private EntryBatch page = new EntryBatch(1);
    private int at;

    MapScanIterator(MapCache<K, N, UK, UV> cache, MapEntry<K, N, UK, UV> entry, RowScan rows) {
        this.cache = cache;
        this.entry = entry;
        this.rows = rows;
    }

    @Override
    public boolean hasNext() {
        if (at < page.size()) {
            return true;
        }
        boolean more = StateAccess.get(rows::next);
        page = more ? rows.page() : new EntryBatch(1);
        at = 0;
        return more;
    }

    /** Hands out the next key and puts its row into the cache, where the iterator will look for it. */
    @Override
    public UK next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        int i = at++;
        return StateAccess.get(() -> cache.remember(entry, page, i));
    }
}
