package org.flinkndb.state;

import org.apache.flink.core.memory.DataInputDeserializer;
import org.flinkndb.cache.AbsenceFilter;
import org.flinkndb.cache.CacheEntry;
import org.flinkndb.cache.EntryCache;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanRequest;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * A cache over the rows of one state. After a restore it knows nothing of what the store holds. It
 * learns in two ways:
 *
 * <ul>
 *   <li>Eager recovery reads all rows in order, a page ahead, and takes a page in whenever a look-up
 *       misses, until everything is cached or the cache is full.
 *   <li>When the server has answered "absent" often enough, the keys are read in the background into
 *       a filter, which answers from then on. So it is again when the filter of what was evicted had
 *       to be dropped.
 * </ul>
 */
abstract class StoredCache<K, N, E extends CacheEntry<K, N>> extends EntryCache<K, N, E> {
    private static final Logger LOG = LoggerFactory.getLogger(StoredCache.class);

    /** So many absent rows are asked for before the keys are read: fewer are not worth it. */
    private static final int ABSENT_ANSWERS = 256;

    /** About what sending a change of a row takes, apart from the value. */
    static final int ROW_BYTES = 32;

    /** So many rows are read along at most: enough for the way to the server to matter little. */
    private static final int READ_ALONG_ROWS = 64;

    /** What a row is taken for before one was read. */
    private static final int FIRST_ROW_BYTES = 4096;

    private final AbstractNdbState<K, N, ?> state;
    private RowScan load;
    private long removalsBefore;
    private long averageRowBytes = FIRST_ROW_BYTES;
    private int absentAnswers;
    private CompletableFuture<AbsenceFilter> storedKeys;

    StoredCache(AbstractNdbState<K, N, ?> state, boolean storeUnknown) {
        super(state.context().writeBehind(), state.context().cacheAccount(), storeUnknown);
        this.state = state;
    }

    /**
     * The key for a new entry. The caller's object may hold another key soon: backends that serialize
     * allow that, and PyFlink relies on it.
     */
    final K keep(K key) {
        return state.codec(true).copyKey(key);
    }

    /** The same for a namespace. */
    final N keepNamespace(N namespace) {
        return state.codec(true).copyNamespace(namespace);
    }

    final void forget() {
        clearCache();
    }

    /** Where something is cached that may expire. */
    final List<Address<K, N>> addresses() {
        List<Address<K, N>> addresses = new ArrayList<>();
        forEach(
                e -> {
                    if (hasValue(e)) {
                        addresses.add(new Address<>(e.key(), e.namespace()));
                    }
                });
        return addresses;
    }

    /** Whether an entry is known to hold something. Task thread. */
    abstract boolean hasValue(E entry);

    /** Whether a row may have changed, unseen by its page, since {@link #watchRemovals}. Task thread. */
    final boolean mayKnowMore(Address<K, N> at, EntryBatch page, int i) throws IOException {
        return mayHaveLeft(at.key(), at.namespace()) || holds(at, page, i);
    }

    /** Whether the cache tells what a row holds now. */
    boolean holds(Address<K, N> at, EntryBatch page, int i) throws IOException {
        return peek(at.key(), at.namespace()) != null;
    }

    // ---------------------------------------------------------------------------- reading along

    /** Reads a row that is not cached, and those that timers will ask for next. */
    final Answer<K, N> readAlong(K key, N namespace, int group)
            throws IOException, InterruptedException {
        Answer<K, N> answer =
                state.readRows(key, namespace, group, along(key, namespace, averageRowBytes));
        if (answer.found(0)) {
            averageRowBytes += (answer.rows().valueLength(0) - averageRowBytes) / 8;
        }
        return answer;
    }

    /** What is worth to be read along with a key and namespace, if so many bytes are read of each. */
    final List<Address<K, N>> along(K key, N namespace, long bytesOfEach) throws IOException {
        long limit =
                Math.min(READ_ALONG_ROWS, maxReadAlongBytes() / Math.max(ROW_BYTES, bytesOfEach));
        List<Address<K, N>> along = new ArrayList<>();
        for (Address<K, N> at : state.askedNext(key, namespace, (int) limit)) {
            if (peek(at.key(), at.namespace()) == null
                    && !knownAbsent(hash(at.key(), at.namespace()))) {
                along.add(at);
            }
        }
        return along;
    }

    /** Caches what was read along, which may evict the first row's entry. */
    final void takeInAlong(Answer<K, N> answer) throws IOException, InterruptedException {
        for (int i = 0; i < answer.along().size(); i++) {
            Address<K, N> at = answer.along().get(i);
            takeInRow(at.key(), at.namespace(), answer.rows(), i + 1);
            if (!answer.found(i + 1)) {
                answeredAbsent();
            }
        }
    }

    // ----------------------------------------------------------------------------- eager recovery

    /** Begins to read all rows. */
    final void loadEagerly() {
        removalsBefore = removals();
        load = new RowScan(state.context().session(), allRows());
    }

    private ScanRequest allRows() {
        return RowScan.allRows(state.context(), state.wireIndex());
    }

    /** The cached entry, possibly after more rows were taken in; null when there is none. */
    final E findOrLoad(K key, N namespace, int hash) throws IOException, InterruptedException {
        E entry = find(key, namespace, hash);
        if (entry == null && load != null && takeIn()) {
            entry = find(key, namespace, hash);
        }
        return entry;
    }

    /**
     * Takes in the page that has arrived. A row that was read may be older than what the task did
     * since: a cached entry is always newer, and as long as nothing was evicted, all that the task
     * touched is cached.
     */
    private boolean takeIn() throws IOException, InterruptedException {
        if (!load.ready()) {
            return false;
        }
        if (removals() != removalsBefore || !hasRoom()) {
            load = null;
            return false;
        }
        if (!load.next()) {
            load = null;
            allRowsCached();
            return true;
        }
        EntryBatch page = load.page();
        for (int i = 0; i < page.size() && removals() == removalsBefore; i++) {
            DataInputDeserializer in =
                    state.codec(true).input(page.keyData(), page.keyOffset(i), page.keyLength(i));
            K key = state.codec(true).readKey(in);
            takeInRow(key, state.codec(true).readNamespace(in), page, i);
        }
        return true;
    }

    /** Caches a row of the store, or (DELETE) that there is none, unless something newer is cached. */
    abstract void takeInRow(K key, N namespace, EntryBatch page, int i)
            throws IOException, InterruptedException;

    /** Everything that the store holds is cached. */
    void allRowsCached() {
        storeIsKnown();
    }

    // --------------------------------------------------------------------------- filter of keys

    /** To be told when the server was asked for a row that is not there. */
    final void answeredAbsent() {
        if (mayHoldOthers() && ++absentAnswers == ABSENT_ANSWERS && load == null) {
            readKeys();
        } else if (storedKeys != null && storedKeys.isDone()) {
            AbsenceFilter filter = storedKeys.getNow(null);
            storedKeys = null;
            if (filter == null) {
                keysNotRead();
            } else {
                storeHoldsOnly(filter);
            }
        }
    }

    @Override
    protected final void storeBecameUnknown() {
        absentAnswers = 0;
        if (storedKeys != null) {
            storedKeys.complete(null); // ends the reading
            storedKeys = null;
        }
    }

    private void readKeys() {
        beginReadingKeys();
        storedKeys = new CompletableFuture<>();
        RowCodec<K, N> codec =
                new RowCodec<>(
                        state.getKeySerializer().duplicate(),
                        state.getNamespaceSerializer().duplicate());
        RowScan rows = new RowScan(state.context().session(), allRows().withKeysOnly());
        long maxBytes = maxFilterBytes();
        CompletableFuture<AbsenceFilter> result = storedKeys;
        Thread thread = new Thread(() -> readKeys(rows, codec, maxBytes, result), "flinkndb-keys");
        thread.setDaemon(true);
        thread.start(); // ends with the session at the latest
    }

    private static <K, N> void readKeys(
            RowScan rows,
            RowCodec<K, N> codec,
            long maxBytes,
            CompletableFuture<AbsenceFilter> result) {
        AbsenceFilter filter = new AbsenceFilter();
        try {
            while (!result.isDone() && rows.next()) {
                EntryBatch page = rows.page();
                for (int i = 0; i < page.size(); i++) {
                    DataInputDeserializer in =
                            codec.input(page.keyData(), page.keyOffset(i), page.keyLength(i));
                    K key = codec.readKey(in);
                    filter.add(hash(key, codec.readNamespace(in)));
                }
                if (filter.bytes() > maxBytes) {
                    filter = null; // too many keys: the server goes on being asked
                    break;
                }
            }
            result.complete(filter);
        } catch (IOException | InterruptedException | RuntimeException e) {
            // The task does not need it, and hears of a broken session itself.
            LOG.debug("The keys of a restored state could not be read.", e);
            result.complete(null);
        }
    }
}
