package org.flinkndb.restore;

import org.apache.flink.runtime.state.CompositeKeySerializationUtils;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.runtime.state.restore.KeyGroup;
import org.apache.flink.runtime.state.restore.KeyGroupEntry;
import org.apache.flink.runtime.state.restore.SavepointRestoreResult;
import org.apache.flink.runtime.state.restore.ThrowingIterator;
import org.flinkndb.backend.BackendCore;
import org.flinkndb.client.EntryBatch;

import java.util.List;

/** Reads canonical savepoints into a fresh session. Their rows have our form already. */
public final class CanonicalRestore {
    private static final int BATCH_ROWS = 4096;
    private static final long BATCH_BYTES = 4 << 20;

    private final BackendCore<?> core;
    private final int prefixBytes;

    public CanonicalRestore(BackendCore<?> core) {
        this.core = core;
        this.prefixBytes =
                CompositeKeySerializationUtils.computeRequiredBytesInKeyGroupPrefix(
                        core.numberOfKeyGroups());
    }

    /** Reads one savepoint's part. */
    public void read(SavepointRestoreResult result) throws Exception {
        List<StateMetaInfoSnapshot> metaInfos = result.getStateMetaInfoSnapshots();
        int[] indexes = new int[metaInfos.size()];
        for (int i = 0; i < indexes.length; i++) {
            core.restored(metaInfos.get(i));
            indexes[i] = core.wireIndex(metaInfos.get(i));
        }
        EntryBatch batch = new EntryBatch();
        try (ThrowingIterator<KeyGroup> groups = result.getRestoredKeyGroups()) {
            while (groups.hasNext()) {
                KeyGroup group = groups.next();
                try (ThrowingIterator<KeyGroupEntry> entries = group.getKeyGroupEntries()) {
                    while (entries.hasNext()) {
                        KeyGroupEntry entry = entries.next();
                        batch =
                                add(
                                        batch,
                                        indexes[entry.getKvStateId()],
                                        group.getKeyGroupId(),
                                        entry);
                    }
                }
            }
        }
        core.writeAll(batch);
    }

    private EntryBatch add(EntryBatch batch, int index, int group, KeyGroupEntry entry)
            throws Exception {
        byte[] key = entry.getKey();
        byte[] value = entry.getValue();
        batch.add(
                index,
                group,
                EntryBatch.OP_PUT,
                key,
                prefixBytes,
                key.length - prefixBytes,
                value,
                0,
                value.length);
        if (batch.size() >= BATCH_ROWS || batch.dataBytes() >= BATCH_BYTES) {
            core.writeAll(batch);
            return new EntryBatch();
        }
        return batch;
    }
}
