package org.flinkndb.cache;

import java.io.IOException;

/**
 * Something that holds changes which the server has not seen: the entries of a state, the pending
 * operations of a timer queue. Registered with {@link WriteBehind}.
 */
public interface DirtySource {
    /** Bytes, estimated, that a flush would send. Task thread. */
    long dirtyBytes();

    /** Sends all changes of the current epoch now; afterwards nothing is dirty. Task thread. */
    void flush(WriteSink sink) throws IOException, InterruptedException;

    /**
     * Detaches all changes of the stage that ends, to be drained later by another thread while the
     * task goes on. Task thread, in constant time: it must not serialize or copy what
     * is dirty. Returns null when nothing is dirty.
     */
    SealedChanges seal(long stage);

    /**
     * Detaches those changes of the stage that ends which were left alone since the look before the
     * given one ({@link WriteBehind#look}), to be sent ahead of the barrier. The others belong to the
     * next stage from now on. Task thread, between two records, in time that grows with what is
     * dirty. Returns null when there are none, and where changes had better wait for the barrier, since
     * most of them will have undone each other by then.
     */
    default SealedChanges sealLeftAlone(long stage, long look) {
        return null;
    }

    /** The changes of one source in one ended stage. */
    interface SealedChanges {
        /**
         * Sends them. Flusher thread. Competes with the task thread, which serializes an entry first
         * when it touches one that this stage still holds.
         */
        void drain(WriteSink sink) throws IOException, InterruptedException;
    }
}
