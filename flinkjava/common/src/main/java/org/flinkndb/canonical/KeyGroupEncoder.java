package org.flinkndb.canonical;

import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.FullSnapshotUtil;

import java.io.IOException;

/**
 * Writes one key group of a snapshot in the layout of Flink's canonical savepoints: the number of a state,
 * its rows, the next number, and a mark at the end. A bit in the last key before a number or the mark
 * announces it, so each row is written when it is known what follows. For one thread.
 */
public final class KeyGroupEncoder {
    private static final int BUFFER_BYTES = 64 << 10;

    private final CanonicalRows rows;
    private final DataOutputSerializer out = new DataOutputSerializer(BUFFER_BYTES);
    private byte[] key;
    private byte[] value;
    private int kvStateId;
    private boolean first = true;

    /** Begins at the row that {@code rows} is at, with the key group of that row. */
    public KeyGroupEncoder(CanonicalRows rows) {
        this.rows = rows;
        take();
    }

    /**
     * Writes some more rows of the group in the place of those before. At the end {@code rows} is at the first
     * one of the next group, if any.
     *
     * @return false when the group has ended
     */
    public boolean fill() throws IOException {
        int group = rows.keyGroup();
        out.clear();
        if (first) {
            out.writeShort(kvStateId);
            first = false;
        }
        while (out.length() < BUFFER_BYTES) {
            boolean ends = !rows.next() || rows.keyGroup() != group;
            boolean newState = !ends && rows.kvStateId() != kvStateId;
            if (ends || newState) {
                FullSnapshotUtil.setMetaDataFollowsFlagInKey(key);
            }
            write(key);
            write(value);
            if (ends) {
                out.writeShort(FullSnapshotUtil.END_OF_KEY_GROUP_MARK);
                return false;
            }
            take();
            if (newState) {
                out.writeShort(kvStateId);
            }
        }
        return true;
    }

    private void take() {
        key = rows.key();
        value = rows.value();
        kvStateId = rows.kvStateId();
    }

    private void write(byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    /** What was written last, in its first {@link #length} bytes. */
    public byte[] data() {
        return out.getSharedBuffer();
    }

    public int length() {
        return out.length();
    }
}
