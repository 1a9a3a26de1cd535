package org.flinkndb.state;

import org.apache.flink.api.java.tuple.Tuple2;

import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * Walks the keys of a state in the store for incremental clean-up, over and over. Flink asks for some
 * entries at every access, so the walk is given a fiftieth of the time only: it ends early and goes on
 * later. Expired rows that it has not reached are not returned by reads. For the task thread.
 */
final class CleanupScan<K, N> {
    private static final long FIRST_CREDIT_NANOS = TimeUnit.MILLISECONDS.toNanos(200);
    private static final long SHARE = 50;

    private final Supplier<Iterator<Tuple2<K, N>>> keys;
    private final Supplier<Boolean> needed;
    private Iterator<Tuple2<K, N>> position;
    private long creditNanos = FIRST_CREDIT_NANOS;
    private long refilled = System.nanoTime();
    private boolean passEnded;

    /**
     * @param keys starts a walk
     * @param needed whether there may be rows that are not cached
     */
    CleanupScan(Supplier<Iterator<Tuple2<K, N>>> keys, Supplier<Boolean> needed) {
        this.keys = keys;
        this.needed = needed;
    }

    /** A new visitor begins. */
    CleanupScan<K, N> begin() {
        passEnded = false;
        return this;
    }

    boolean hasNext() {
        if (passEnded || !needed.get() || !hasCredit()) {
            return false;
        }
        long start = System.nanoTime();
        if (position == null) {
            position = keys.get();
        }
        boolean more = position.hasNext();
        if (!more) {
            position = null;
            passEnded = true;
        }
        spent(System.nanoTime() - start);
        return more;
    }

    CleanupVisitor.Address<K, N> next() {
        Tuple2<K, N> at = position.next();
        return new CleanupVisitor.Address<>(at.f0, at.f1);
    }

    void spent(long nanos) {
        creditNanos -= nanos;
    }

    private boolean hasCredit() {
        long now = System.nanoTime();
        creditNanos = Math.min(FIRST_CREDIT_NANOS, creditNanos + (now - refilled) / SHARE);
        refilled = now;
        return creditNanos > 0;
    }
}
