package org.flinkndb.cache;

import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateSession;

import java.io.IOException;

/** Gathers the changes of one epoch in batches and hands full ones to the session. For one thread. */
final class BatchSink implements WriteSink {
    private final StateSession session;
    private final long epoch;
    private final int maxRows;
    private final int maxBytes;
    private EntryBatch batch;

    BatchSink(StateSession session, long epoch, int maxRows, int maxBytes) {
        this.session = session;
        this.epoch = epoch;
        this.maxRows = Math.min(maxRows, session.limits().maxBatchRows());
        this.maxBytes = Math.min(maxBytes, session.limits().maxValueBytes());
    }

    @Override
    public void add(
            int state,
            int group,
            byte op,
            byte[] key,
            int keyOffset,
            int keyLength,
            byte[] value,
            int valueOffset,
            int valueLength)
            throws IOException, InterruptedException {
        session.checkSize(state, keyLength, valueLength); // before it is copied
        long size = (long) keyLength + valueLength;
        if (batch != null && batch.dataBytes() + size > maxBytes) {
            finish();
        }
        if (batch == null) {
            batch = new EntryBatch();
        }
        batch.add(state, group, op, key, keyOffset, keyLength, value, valueOffset, valueLength);
        if (batch.size() >= maxRows || batch.dataBytes() >= maxBytes) {
            finish();
        }
    }

    /** Sends what has been gathered. */
    void finish() throws IOException, InterruptedException {
        if (batch != null) {
            EntryBatch full = batch;
            batch = null;
            session.write(epoch, full);
        }
    }
}
