package org.flinkndb.state;

import org.apache.flink.runtime.state.StateEntry;
import org.flinkndb.client.ScanPage;

import java.io.IOException;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Walks the rows of a state in the store for incremental clean-up, over and over, a page at a time. The
 * task never waits for a page. Flink asks for some entries at every access, which would keep the server
 * busy with nothing else, so a page is asked for only when the time spent on pages, the server's
 * included, is less than a fiftieth of the time that passes; pages of expired rows may take up to five
 * times that. Expired rows that have not been reached are not returned by reads. For the task thread.
 */
final class CleanupScan<K, N, V> implements CleanupVisitor.Stored<K, N, V> {
    private static final long FIRST_CREDIT_NANOS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long SHARE = 50;

    /** Removing all of a page's rows makes it so much cheaper. */
    private static final double REWARD = 0.8;

    private final StoredRows<K, N, V> stored;
    private CompletableFuture<Arrived> asked;
    private ScanPage page;
    private int next;
    private final BitSet expired = new BitSet();
    private long pageNanos;
    private int afterGroup = -1;
    private byte[] afterKey;
    private boolean passEnded;
    private long creditNanos = FIRST_CREDIT_NANOS;
    private long refilled = System.nanoTime();

    private static final class Arrived {
        private final ScanPage page;
        private final long nanos;

        private Arrived(ScanPage page, long nanos) {
            this.page = page;
            this.nanos = nanos;
        }
    }

    CleanupScan(StoredRows<K, N, V> stored) {
        this.stored = stored;
    }

    /** A new visitor begins. */
    CleanupScan<K, N, V> begin() {
        passEnded = false;
        return this;
    }

    /** Forgets the page: the state is read in another way from now on. */
    void reset() {
        asked = null;
        page = null;
        expired.clear();
        stored.done();
    }

    @Override
    public boolean hasNext() throws IOException, InterruptedException {
        if (page == null && asked == null) {
            askIfAllowed();
        }
        if (page == null && asked != null && asked.isDone()) {
            arrived();
        }
        if (page != null && next == page.rows().size()) {
            finishPage();
        }
        return page != null;
    }

    @Override
    public List<StateEntry<K, N, V>> nextEntries(int rows)
            throws IOException, InterruptedException {
        long start = System.nanoTime();
        List<StateEntry<K, N, V>> entries = new ArrayList<>(rows);
        for (int end = Math.min(page.rows().size(), next + rows); next < end; next++) {
            StoredRow<K, N, V> row = stored.row(page, next);
            if (row == null) {
                continue;
            }
            if (row.getState() == null) {
                expired.set(next);
            } else {
                entries.add(row);
            }
        }
        pageNanos += System.nanoTime() - start;
        return entries;
    }

    @Override
    public void update(StoredRow<K, N, V> row, V value) throws IOException, InterruptedException {
        if (!stored.retain(row, value)) {
            expired.set(row.index());
        }
    }

    private void askIfAllowed() {
        if (passEnded || !stored.mayHaveUncached() || !hasCredit()) {
            return;
        }
        long start = System.nanoTime();
        asked =
                stored.ask(afterGroup, afterKey)
                        .thenApply(rows -> new Arrived(rows, System.nanoTime() - start));
    }

    private void arrived() throws IOException, InterruptedException {
        Arrived arrived = stored.await(asked);
        asked = null;
        page = arrived.page;
        pageNanos = arrived.nanos;
        next = 0;
    }

    private void finishPage() throws IOException, InterruptedException {
        long start = System.nanoTime();
        int rows = page.rows().size();
        int removed = expired.cardinality();
        if (removed > 0 && !stored.remove(page, expired)) {
            return;
        }
        passEnded = page.done() || rows == 0;
        afterGroup = passEnded ? -1 : page.rows().group(rows - 1);
        afterKey = passEnded ? null : page.rows().key(rows - 1);
        double share = rows == 0 ? 1 : 1 - REWARD * removed / rows;
        creditNanos -= (long) (share * (pageNanos + System.nanoTime() - start));
        reset();
    }

    private boolean hasCredit() {
        long now = System.nanoTime();
        creditNanos = Math.min(FIRST_CREDIT_NANOS, creditNanos + (now - refilled) / SHARE);
        refilled = now;
        return creditNanos > 0;
    }
}
