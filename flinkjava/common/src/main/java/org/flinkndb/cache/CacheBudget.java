package org.flinkndb.cache;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The heap that all object caches of a TaskManager may fill together. A backend that needs more than an
 * equal share may take what others leave free; when nothing is free any more, those above the equal
 * share give back as they go on, and at barriers, so that the others can grow. Until then the sum may be
 * above the budget by what those others took. Thread-safe; the accounts are not.
 */
public final class CacheBudget {
    /** Accounts report their use in steps of this size, so that they seldom meet. */
    private static final long REPORT_BYTES = 64 << 10;

    private final long totalBytes;
    private final AtomicInteger accounts = new AtomicInteger();
    private final AtomicLong usedByAll = new AtomicLong();

    public CacheBudget(long totalBytes) {
        this.totalBytes = totalBytes;
    }

    /** Opens the account of one backend; {@code onClose} runs once, when it is closed. */
    public Account open(Runnable onClose) {
        accounts.incrementAndGet();
        return new Account(onClose);
    }

    /** Something that can let go of what it has cached. */
    public interface Evictable {
        /** Bytes cached, estimated. */
        long cachedBytes();

        /** Lets go of at least so many bytes, if that many are clean. Returns how many. */
        long evict(long bytes);
    }

    /** One backend's part. For the task thread, except {@link #close}. */
    public final class Account {
        private final List<Evictable> caches = new ArrayList<>();
        private final Runnable onClose;
        private long used;
        private long reported;
        private long hits;
        private long misses;
        private boolean closed;

        private Account(Runnable onClose) {
            this.onClose = onClose;
        }

        public void register(Evictable cache) {
            caches.add(cache);
        }

        /** Notes bytes that were cached (or, negative, let go). */
        public void add(long bytes) {
            used += bytes;
            if (Math.abs(used - reported) >= REPORT_BYTES) {
                report();
            }
        }

        /** Tells the others, unless the account was closed meanwhile by another thread. */
        private synchronized void report() {
            if (!closed) {
                usedByAll.addAndGet(used - reported);
                reported = used;
            }
        }

        /** Counts a look-up. */
        void count(boolean hit) {
            if (hit) {
                hits++;
            } else {
                misses++;
            }
        }

        public long hits() {
            return hits;
        }

        public long misses() {
            return misses;
        }

        public long usedBytes() {
            return used;
        }

        /** Bytes that this backend may fill now: an equal share, or more while others leave it. */
        public long limit() {
            long free = totalBytes - usedByAll.get();
            return Math.max(totalBytes / Math.max(1, accounts.get()), reported + free);
        }

        public boolean isOver() {
            return used > limit();
        }

        /** Gives back what is above the limit, but no more at once than takes a moment. */
        public void giveBack() {
            long limit = limit();
            if (used > limit) {
                evictTo(Math.max(limit, used - used / 8));
            }
        }

        /** Evicts until there is some room again; true when that is so. */
        public boolean makeRoom() {
            long limit = limit();
            evictTo(limit - limit / 16); // not one entry at a time
            return used <= limit;
        }

        private void evictTo(long goal) {
            for (Evictable cache : caches) {
                if (used <= goal) {
                    return;
                }
                // Each cache gives in proportion to what it holds.
                double share = (double) cache.cachedBytes() / Math.max(1, used);
                cache.evict((long) Math.ceil((used - goal) * Math.min(1.0, 2 * share)));
            }
            for (Evictable cache : caches) {
                if (used > goal) {
                    cache.evict(used - goal);
                }
            }
        }

        /** Gives the part back. Any thread, idempotent. */
        public synchronized void close() {
            if (!closed) {
                closed = true;
                accounts.decrementAndGet();
                usedByAll.addAndGet(-reported);
                onClose.run();
            }
        }
    }
}
