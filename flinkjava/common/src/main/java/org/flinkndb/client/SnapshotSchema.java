package org.flinkndb.client;

import java.util.Collections;
import java.util.List;

/** What a snapshot says of keys and states. Immutable; the bytes must not be changed. */
public final class SnapshotSchema {
    private final byte[] bytes;
    private final List<StateName> states;

    /**
     * @param bytes Flink's description: the header of a canonical savepoint
     * @param states the states that it describes, in its order; empty in snapshots of versions that
     *     did not say so
     */
    public SnapshotSchema(byte[] bytes, List<StateName> states) {
        this.bytes = bytes;
        this.states = Collections.unmodifiableList(states);
    }

    public byte[] bytes() {
        return bytes;
    }

    public List<StateName> states() {
        return states;
    }
}
