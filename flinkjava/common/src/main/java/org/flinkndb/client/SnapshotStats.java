package org.flinkndb.client;

/** What a snapshot added to the one before, and which key groups have rows in it. */
public final class SnapshotStats {
    private final long deltaRows;
    private final long deltaBytes;
    private final KeyGroupRows.View keyGroups;

    public SnapshotStats(long deltaRows, long deltaBytes, KeyGroupRows.View keyGroups) {
        this.deltaRows = deltaRows;
        this.deltaBytes = deltaBytes;
        this.keyGroups = keyGroups;
    }

    /** Which key groups have rows in the snapshot, as far as it is known. */
    public KeyGroupRows.View keyGroups() {
        return keyGroups;
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
