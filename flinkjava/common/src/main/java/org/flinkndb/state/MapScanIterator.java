package org.flinkndb.state;

import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateAccess;

import java.util.Iterator;
import java.util.NoSuchElementException;

/** The map keys of a map that is too large to be cached as a whole, from the store, page by page. */
final class MapScanIterator<K, N, UK, UV> implements Iterator<UK> {
    private final MapCache<K, N, UK, UV> cache;
    private final RowScan rows;

    /** The map's entry when the page was requested. */
    private MapEntry<K, N, UK, UV> entryOfPage;

    /** The same of the next page, which is requested when this one is gone to. */
    private MapEntry<K, N, UK, UV> entryOfNext;

    private EntryBatch page = new EntryBatch(1);
    private int at;

    /**
     * @param entry the map's entry, which is cached
     * @param rows has just been requested
     */
    MapScanIterator(MapCache<K, N, UK, UV> cache, MapEntry<K, N, UK, UV> entry, RowScan rows) {
        this.cache = cache;
        this.entryOfNext = entry;
        this.rows = rows;
    }

    @Override
    public boolean hasNext() {
        if (at < page.size()) {
            return true;
        }
        entryOfPage = entryOfNext;
        entryOfNext = StateAccess.get(() -> cache.cachedNow(entryOfPage));
        boolean more = StateAccess.get(rows::next);
        page = more ? rows.page() : new EntryBatch(1);
        at = 0;
        return more;
    }

    /** Hands out the next key; its row goes into the cache, where the iterator looks, if it is current. */
    @Override
    public UK next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        int i = at++;
        return StateAccess.get(() -> cache.remember(entryOfPage, page, i));
    }
}
