package org.flinkndb.client;

/** Why a snapshot is taken. Numbers are those of the wire. */
public enum SnapshotKind {
    CHECKPOINT(1),
    /** Native savepoint. */
    SAVEPOINT(2),
    /** Read by a canonical savepoint; ends with the session. */
    EXPORT(3);

    private final int number;

    SnapshotKind(int number) {
        this.number = number;
    }

    /** Number on the wire. */
    public int number() {
        return number;
    }
}
