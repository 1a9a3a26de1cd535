package org.flinkndb.client;

import java.io.Closeable;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/**
 * One session with a state server: the only way in which the rest of the shim reaches it.
 *
 * <p>Requests are worked through by the server in the order in which these methods were called, so
 * a read sees every earlier write and none of the later ones. All methods may be called by any
 * thread; callers that need an order between threads establish it themselves.
 *
 * <p>A broken connection or a restarted server is a pause: the session reconnects (to any configured
 * address), sends unacknowledged writes again and repeats open requests. Only when that fails for
 * longer than the reconnect timeout, or the server refuses (fenced, expired), do all open and later
 * calls fail with an {@link StateSessionException}.
 */
public interface StateSession extends Closeable {

    /** Number of the session, for logs. */
    long sessionId();

    /** Generation of the session. */
    long generation();

    /** Limits that the server states. */
    SessionLimits limits();

    /**
     * Refuses what the server would not take.
     *
     * @throws StateSessionException naming the state, the size and the limit
     */
    void checkSize(int state, int keyBytes, int valueBytes) throws StateSessionException;

    /** Whether nothing was restored: every key is known to be absent. */
    boolean startsEmpty();

    /** Schemas of the bases given to open, in their order. */
    List<byte[]> baseSchemas();

    /** The path authority and prefix of references to snapshots of this session's server. */
    String snapshotUri(String snapshotId);

    /**
     * Gives a state its index on the wire. Calling it again for the same name and kind class
     * returns the same index. No round trip.
     */
    int registerState(String name, StateKind kind);

    /**
     * Sends a batch of writes. Waits, interruptibly, only when too many bytes are unacknowledged.
     * The batch belongs to the session from here on. Epochs never decrease.
     */
    void write(long epoch, EntryBatch batch) throws IOException, InterruptedException;

    /** Looks up rows; the answer has one entry per key, in order, PUT (found) or DELETE (absent). */
    CompletableFuture<EntryBatch> read(EntryBatch keys);

    /** One page of a scan. */
    CompletableFuture<ScanPage> scan(ScanRequest request);

    /** Number of rows of a state in the key groups first..last. */
    CompletableFuture<Long> count(int state, int firstGroup, int lastGroup);

    /** Takes a snapshot of everything written so far; {@code epoch} is the epoch that ends. */
    CompletableFuture<SnapshotStats> takeSnapshot(
            String snapshotId,
            long epoch,
            long checkpointId,
            SnapshotKind kind,
            SnapshotSchema schema);

    /** Passes on a hint of Flink; never waits, never fails. */
    void notifyCheckpoint(long checkpointId, boolean completed);

    /**
     * Waits for a future of this session. Honours interruption (the flag stays set and the exception
     * says so) and ends at once when the session is closed.
     */
    <T> T await(CompletableFuture<T> future) throws IOException, InterruptedException;

    /**
     * Ends the session. Idempotent; from any thread; unblocks every waiting call. Waits at most a
     * short time for the server to hear of it.
     */
    @Override
    void close();
}
