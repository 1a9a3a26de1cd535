package org.flinkndb.client;

/** What a snapshot added to the one before. */
public final class SnapshotStats {
    private final long deltaRows;
    private final long deltaBytes;

    public SnapshotStats(long deltaRows, long deltaBytes) {
        this.deltaRows = deltaRows;
        this.deltaBytes = deltaBytes;
    }

    /** Rows written since the previous snapshot of the session. */
    public long deltaRows() {
        return deltaRows;
    }

    /** Key and value bytes of these rows. */
    public long deltaBytes() {
        return deltaBytes;
    }
}
