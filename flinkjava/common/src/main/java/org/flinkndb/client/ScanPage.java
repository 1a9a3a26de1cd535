package org.flinkndb.client;

/** One page of a scan: rows, and whether any may follow. */
public final class ScanPage {
    private final EntryBatch rows;
    private final boolean done;

    public ScanPage(EntryBatch rows, boolean done) {
        this.rows = rows;
        this.done = done;
    }

    public EntryBatch rows() {
        return rows;
    }

    /** No row follows the last one here. */
    public boolean done() {
        return done;
    }
}
