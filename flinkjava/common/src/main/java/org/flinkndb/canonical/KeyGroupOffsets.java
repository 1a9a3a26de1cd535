package org.flinkndb.canonical;

import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeOffsets;
import org.flinkndb.client.KeyGroupRows;

/**
 * Where key groups start in a snapshot that is read as a file. Nobody knows their sizes when a snapshot
 * is taken, so the offsets are virtual: they name the key group, and nothing is in between. As in all of
 * Flink's files 0 stands for an empty one, since its readers cannot read an empty group.
 */
public final class KeyGroupOffsets {
    /** Log of the bytes from one key group to the next. The last of 32768 starts below 2^56. */
    private static final int SHIFT = 40;

    private KeyGroupOffsets() {}

    /** The offset of a key group. */
    public static long of(int keyGroup) {
        return (keyGroup + 1L) << SHIFT;
    }

    /** Offsets of a snapshot's key groups; 0 for those that are known to be empty. */
    public static KeyGroupRangeOffsets of(KeyGroupRange range, KeyGroupRows.View rows) {
        KeyGroupRangeOffsets offsets = new KeyGroupRangeOffsets(range);
        for (int group : range) {
            boolean empty = rows.of(group) == KeyGroupRows.Known.EMPTY;
            offsets.setKeyGroupOffset(group, empty ? 0 : of(group));
        }
        return offsets;
    }

    /** The key group that starts at an offset; -1 when none does. */
    public static int keyGroupAt(long offset) {
        long group = (offset >> SHIFT) - 1;
        return group >= 0 && group <= Short.MAX_VALUE && of((int) group) == offset
                ? (int) group
                : -1;
    }
}
