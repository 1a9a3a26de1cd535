package org.flinkndb.state;

import org.flinkndb.client.EntryBatch;

import java.util.List;

/** Rows that were read: first the one that was asked for, then those that were read along with it. */
final class Answer<K, N> {
    private final EntryBatch rows;
    private final List<Address<K, N>> along;

    Answer(EntryBatch rows, List<Address<K, N>> along) {
        this.rows = rows;
        this.along = along;
    }

    /** The rows; the first is the one that was asked for. */
    EntryBatch rows() {
        return rows;
    }

    /** Whether a row exists. */
    boolean found(int i) {
        return rows.op(i) == EntryBatch.OP_PUT;
    }

    /** Whose the rows behind the first are. */
    List<Address<K, N>> along() {
        return along;
    }
}
