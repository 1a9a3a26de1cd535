package org.flinkndb.client;

import java.util.Arrays;
import java.util.BitSet;

/**
 * Which key groups of a session have rows, as far as that follows from what the session wrote: a group
 * has some while a row is there that was put and not deleted since. Never wrong, but not always known: not
 * after a restore, and not when the row is gone that was remembered. Thread-safe.
 */
public final class KeyGroupRows {
    /** What is known of a key group. */
    public enum Known {
        NOTHING,
        EMPTY,
        SOME
    }

    private final int first;
    private final boolean[] empty;

    /** A row that each group has; null where none is known. */
    private final Row[] witnesses;

    /** Number of the last batch that changed the group, or of the last lesson. */
    private final long[] changed;

    /** While a batch is gone through: the last row put there, by its place in the batch. */
    private final int[] put;

    private long batches;

    /** Key groups first..last, which have no rows or of which nothing is known. */
    public KeyGroupRows(int first, int last, boolean startsEmpty) {
        int n = last - first + 1;
        this.first = first;
        this.empty = new boolean[n];
        this.witnesses = new Row[n];
        this.changed = new long[n];
        this.put = new int[n];
        Arrays.fill(empty, startsEmpty);
    }

    /** Takes in a batch of writes. Batches come in the order in which they are applied. */
    public synchronized void note(EntryBatch batch) {
        batches++;
        Arrays.fill(put, -1);
        for (int i = 0; i < batch.size(); i++) {
            int group = batch.group(i) - first;
            changed[group] = batches;
            switch (batch.op(i)) {
                case EntryBatch.OP_PUT:
                case EntryBatch.OP_APPEND:
                    put[group] = i;
                    empty[group] = false;
                    break;
                default:
                    noteDelete(batch, i, group);
            }
        }
        for (int group = 0; group < put.length; group++) {
            if (put[group] >= 0) {
                witnesses[group] = new Row(batch.state(put[group]), batch.key(put[group]));
            }
        }
    }

    private void noteDelete(EntryBatch batch, int i, int group) {
        boolean prefix = batch.op(i) == EntryBatch.OP_DELETE_PREFIX;
        int candidate = put[group];
        if (candidate >= 0
                && batch.state(candidate) == batch.state(i)
                && covers(
                        batch,
                        i,
                        prefix,
                        batch.keyData(),
                        batch.keyOffset(candidate),
                        batch.keyLength(candidate))) {
            put[group] = -1;
        }
        Row witness = witnesses[group];
        if (witness != null
                && (witness.key == null
                        || witness.state == batch.state(i)
                                && covers(batch, i, prefix, witness.key, 0, witness.key.length))) {
            witnesses[group] = null;
        }
    }

    /** Whether a deletion is of a key. */
    private static boolean covers(
            EntryBatch batch, int i, boolean prefix, byte[] key, int offset, int length) {
        int deleted = batch.keyLength(i);
        if (prefix ? deleted > length : deleted != length) {
            return false;
        }
        int from = batch.keyOffset(i);
        return Arrays.equals(batch.keyData(), from, from + deleted, key, offset, offset + deleted);
    }

    /** What is known now. */
    public synchronized View view() {
        Known[] known = new Known[empty.length];
        for (int group = 0; group < known.length; group++) {
            known[group] =
                    empty[group]
                            ? Known.EMPTY
                            : witnesses[group] == null ? Known.NOTHING : Known.SOME;
        }
        return new View(known, batches);
    }

    private synchronized void learn(View view, BitSet some) {
        for (int group = 0; group < empty.length; group++) {
            if (view.known[group] == Known.NOTHING && changed[group] <= view.batches) {
                empty[group] = !some.get(first + group);
                witnesses[group] = empty[group] ? null : Row.ANY;
            }
        }
    }

    /** What was known at one point between the writes. Immutable but for {@link #learn}. */
    public final class View {
        private final Known[] known;
        private final long batches;

        private View(Known[] known, long batches) {
            this.known = known;
            this.batches = batches;
        }

        /** What was known of a key group. */
        public Known of(int keyGroup) {
            return known[keyGroup - first];
        }

        /** Whether of every key group it was known if it has rows. */
        public boolean isComplete() {
            return !Arrays.asList(known).contains(Known.NOTHING);
        }

        /** Completes it with the key groups that had rows then. */
        public void learn(BitSet some) {
            KeyGroupRows.this.learn(this, some);
            for (int group = 0; group < known.length; group++) {
                if (known[group] == Known.NOTHING) {
                    known[group] = some.get(first + group) ? Known.SOME : Known.EMPTY;
                }
            }
        }
    }

    /** A row of a group. */
    private static final class Row {
        /** One of which only the group is known: any deletion may be of it. */
        private static final Row ANY = new Row(-1, null);

        private final int state;
        private final byte[] key;

        private Row(int state, byte[] key) {
            this.state = state;
            this.key = key;
        }
    }
}
