package org.flinkndb.canonical;

import org.apache.flink.runtime.state.CompositeKeySerializationUtils;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.SnapshotClient;
import org.flinkndb.client.StateName;

import java.io.Closeable;
import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Walks the rows of a snapshot in the order of Flink's canonical savepoints: by key group, then state.
 * Values have the form of these savepoints already, keys only lack the prefix. For one thread, but {@link
 * #close} may come from another one to end a read that waits.
 */
public final class CanonicalRows implements Closeable {
    private static final int UNKNOWN = -1;

    private final SnapshotClient.Rows rows;
    private final int prefixBytes;
    private final int[] kvStateIds;

    private EntryBatch batch = new EntryBatch(1);
    private int at = -1;
    private boolean valid;

    /**
     * @param states the states that the reader knows, in the order that numbers them; rows of others are
     *     left out
     * @param keyGroups Flink's maximum parallelism, on which the length of the prefix depends
     */
    public CanonicalRows(SnapshotClient.Rows rows, List<StateName> states, int keyGroups) {
        this.rows = rows;
        this.prefixBytes =
                CompositeKeySerializationUtils.computeRequiredBytesInKeyGroupPrefix(keyGroups);
        Map<StateName, Integer> ids = new HashMap<>();
        for (int i = 0; i < states.size(); i++) {
            ids.put(states.get(i), i);
        }
        this.kvStateIds = new int[rows.states().size()];
        for (int i = 0; i < kvStateIds.length; i++) {
            kvStateIds[i] = ids.getOrDefault(rows.states().get(i), UNKNOWN);
        }
    }

    /** Goes to the next row; false when there is none. */
    public boolean next() throws IOException {
        do {
            at++;
            while (at >= batch.size()) {
                batch = rows.next();
                at = 0;
                if (batch == null) {
                    batch = new EntryBatch(1);
                    valid = false;
                    return false;
                }
            }
        } while (kvStateIds[batch.state(at)] == UNKNOWN);
        valid = true;
        return true;
    }

    /** Whether this is at a row. */
    public boolean isValid() {
        return valid;
    }

    public int keyGroup() {
        return batch.group(at);
    }

    /** The state's number in the reader's order. */
    public int kvStateId() {
        return kvStateIds[batch.state(at)];
    }

    /** The key with its prefix, in a fresh array: Flink changes it. */
    public byte[] key() {
        int length = batch.keyLength(at);
        byte[] key = new byte[prefixBytes + length];
        for (int i = 0; i < prefixBytes; i++) {
            key[i] = (byte) (keyGroup() >>> (8 * (prefixBytes - 1 - i)));
        }
        System.arraycopy(batch.keyData(), batch.keyOffset(at), key, prefixBytes, length);
        return key;
    }

    public byte[] value() {
        return batch.value(at);
    }

    @Override
    public void close() {
        rows.close();
    }
}
