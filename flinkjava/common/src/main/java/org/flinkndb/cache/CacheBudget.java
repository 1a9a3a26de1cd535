package org.flinkndb.cache;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The heap that all object caches of a TaskManager may fill, shared equally among the backends that
 * are open. Thread-safe; the accounts are not.
 */
public final class CacheBudget {
    private final long totalBytes;
    private final AtomicInteger accounts = new AtomicInteger();

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

        /** Bytes that this backend may fill now. */
        public long limit() {
            return totalBytes / Math.max(1, accounts.get());
        }

        public boolean isOver() {
            return used > limit();
        }

        /** Evicts until there is some room again; true when that is so. */
        public boolean makeRoom() {
            long goal = limit() - limit() / 16; // not one entry at a time
            for (Evictable cache : caches) {
                if (used <= goal) {
                    return true;
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
            return used <= limit();
        }

        /** Gives the part back. Any thread, idempotent. */
        public synchronized void close() {
            if (!closed) {
                closed = true;
                accounts.decrementAndGet();
                onClose.run();
            }
        }
    }
}
