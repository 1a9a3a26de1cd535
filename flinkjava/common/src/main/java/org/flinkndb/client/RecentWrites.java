package org.flinkndb.client;

import java.util.ArrayDeque;

/**
 * Tells whether rows may be changed by a write that the server is not known to have applied. Remembers,
 * in two slots that a row's hash gives, the newest write that changed a row there; so an answer may be
 * yes where it is no, never the other way. Guarded by the session's lock.
 */
final class RecentWrites {
    private static final int FIRST_SLOTS = 1 << 10;

    /** 8 MiB. */
    private static final int MOST_SLOTS = 1 << 20;

    /** So many slots for each row that is not applied: one answer in twenty is wrong, or fewer. */
    private static final int SLOTS_PER_ROW = 8;

    private final ArrayDeque<Write> unapplied = new ArrayDeque<>();
    private long unappliedRows;
    private long appliedSeq;
    private long[] newest = new long[FIRST_SLOTS];
    private long newestPrefix;

    /** What is to be known of the rows of a batch. Immutable. */
    static final class Rows {
        private final int[] hashes;
        private final boolean prefix; // whether one stands for all rows with a prefix

        private Rows(int[] hashes, boolean prefix) {
            this.hashes = hashes;
            this.prefix = prefix;
        }

        static Rows of(EntryBatch batch) {
            int[] hashes = new int[batch.size()];
            boolean prefix = false;
            for (int i = 0; i < hashes.length; i++) {
                hashes[i] = hash(batch, i);
                prefix |= batch.op(i) == EntryBatch.OP_DELETE_PREFIX;
            }
            return new Rows(hashes, prefix);
        }

        private static int hash(EntryBatch batch, int i) {
            byte[] data = batch.keyData();
            int end = batch.keyOffset(i) + batch.keyLength(i);
            int h = batch.state(i);
            for (int at = batch.keyOffset(i); at < end; at++) {
                h = 31 * h + data[at];
            }
            h *= 0x9E3779B9;
            return h ^ (h >>> 15);
        }
    }

    private static final class Write {
        private final long seq;
        private final Rows rows;

        private Write(long seq, Rows rows) {
            this.seq = seq;
            this.rows = rows;
        }
    }

    /**
     * Notes a write.
     *
     * @param seq higher than those before
     */
    void note(long seq, Rows rows) {
        Write write = new Write(seq, rows);
        unapplied.add(write);
        unappliedRows += rows.hashes.length;
        int slots = newest.length;
        while (slots < MOST_SLOTS && slots < SLOTS_PER_ROW * unappliedRows) {
            slots *= 2;
        }
        if (slots == newest.length) {
            mark(write);
            return;
        }
        newest = new long[slots];
        unapplied.forEach(this::mark);
    }

    private void mark(Write write) {
        if (write.rows.prefix) {
            newestPrefix = write.seq;
        }
        for (int hash : write.rows.hashes) {
            newest[first(hash)] = write.seq;
            newest[second(hash)] = write.seq;
        }
    }

    private int first(int hash) {
        return hash & (newest.length - 1);
    }

    private int second(int hash) {
        int mixed = hash * 0x85EBCA6B;
        return (mixed ^ (mixed >>> 16)) & (newest.length - 1);
    }

    /** Writes up to a seq are applied. */
    void applied(long seq) {
        appliedSeq = Math.max(appliedSeq, seq);
        while (!unapplied.isEmpty() && unapplied.peek().seq <= seq) {
            unappliedRows -= unapplied.poll().rows.hashes.length;
        }
    }

    /** Forgets all writes. The server has applied those up to a seq, maybe fewer than was known. */
    void restart(long seq) {
        unapplied.clear();
        unappliedRows = 0;
        appliedSeq = seq;
        newestPrefix = 0;
        newest = new long[FIRST_SLOTS];
    }

    /** Whether a write that is not applied may change one of the rows. */
    boolean mayChange(Rows rows) {
        if (newestPrefix > appliedSeq) {
            return true;
        }
        for (int hash : rows.hashes) {
            if (newest[first(hash)] > appliedSeq && newest[second(hash)] > appliedSeq) {
                return true;
            }
        }
        return false;
    }
}
