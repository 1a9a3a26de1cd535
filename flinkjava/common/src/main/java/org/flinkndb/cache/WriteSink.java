package org.flinkndb.cache;

import java.io.IOException;

/** Takes row changes of one epoch, in order, and puts them into batches for the session. */
public interface WriteSink {
    /**
     * @param op one of EntryBatch.OP_PUT, OP_DELETE, OP_APPEND, OP_DELETE_PREFIX
     */
    void add(
            int state,
            int group,
            byte op,
            byte[] key,
            int keyOffset,
            int keyLength,
            byte[] value,
            int valueOffset,
            int valueLength)
            throws IOException, InterruptedException;
}
