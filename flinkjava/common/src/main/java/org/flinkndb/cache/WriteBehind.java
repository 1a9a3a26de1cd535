package org.flinkndb.cache;

import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.StateSession;

import java.io.Closeable;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;

/**
 * Holds changes back and sends them in batches. Owns the epoch number. At a barrier the changes of the
 * ending epoch are sealed in constant time and sent by a thread of its own, while the task goes on.
 * When many gather before the barrier comes, WriteBehind <b>looks</b> for those that were left alone
 * since it last did, which are sealed and sent ahead of the barrier in the same way ({@link SendAhead}
 * says when). So an epoch has one or more <b>stages</b>, each of which ends when changes are sealed.
 * Sealed stages are sent completely, in order, before anything of a later one.
 *
 * <p>Methods are for the task thread, except {@link #sentStage} and {@link #close}.
 */
public final class WriteBehind implements Closeable {
    private final StateSession session;
    private final int batchRows;
    private final int batchBytes;
    private final long maxDirtyBytes;
    private final List<DirtySource> sources = new ArrayList<>();
    private final FlushListener listener;
    private final ExecutorService flusher;

    private final SendAhead ahead;

    private long epoch = 1;
    private long stage = 1;
    private long look = 1;
    private long dirtyBytes;

    /** What of them was not to be sent ahead when that was last looked at. */
    private long leftBytes;

    /** The newest sealed stage on its way; complete when nothing is, failed once changes are lost. */
    private CompletableFuture<Void> sealed = CompletableFuture.completedFuture(null);

    /** The epoch of which that stage is. */
    private long sealedEpoch;

    /** All changes of stages up to this one have been handed to the session. */
    private volatile long sentStage;

    public WriteBehind(
            StateSession session,
            int batchRows,
            int batchBytes,
            long maxDirtyBytes,
            FlushListener listener) {
        this.listener = listener;
        this.session = session;
        this.batchRows = batchRows;
        this.batchBytes = batchBytes;
        this.maxDirtyBytes = maxDirtyBytes;
        this.ahead = new SendAhead(maxDirtyBytes);
        this.flusher =
                Executors.newSingleThreadExecutor(
                        task -> {
                            Thread thread = new Thread(task, "flinkndb-flusher");
                            thread.setDaemon(true);
                            return thread;
                        });
    }

    /** What follows the last write of an epoch, for example the request for a snapshot. */
    public interface AfterEpoch<T> {
        CompletableFuture<T> run(long endedEpoch);
    }

    /** Adds something that holds changes back. */
    public void register(DirtySource source) {
        sources.add(source);
    }

    /** The current epoch. */
    public long epoch() {
        return epoch;
    }

    /** The current stage; grows also within an epoch. */
    public long stage() {
        return stage;
    }

    /** How often it was looked for changes to be sent ahead, and once more. */
    long look() {
        return look;
    }

    /** All changes of stages up to this one have been handed to the session. Any thread. */
    public long sentStage() {
        return sentStage;
    }

    /** Notes that about so many bytes became dirty; sends everything when it is too much. */
    public void noteDirty(long bytes) throws IOException, InterruptedException {
        dirtyBytes += bytes;
        if (dirtyBytes > maxDirtyBytes) {
            flush();
        }
    }

    /** Notes that about so many bytes became dirty which had been taken from their entry in a stage. */
    void noteDirtyAgain(long takenStage, long bytes) {
        ahead.noteChangedAgain(takenStage, bytes);
    }

    /**
     * Sends changes ahead of the barrier if that is worth it. To be called between records: the
     * flusher serializes what is sealed here, so the job must not hold an object of it that it is
     * about to change.
     */
    public void betweenRecords() throws IOException, InterruptedException {
        if (ahead.worthIt(dirtyBytes - leftBytes) && sealed.isDone()) {
            awaitSealed(); // fails if sending has failed
            long thisLook = look++;
            handOver(
                    (source, ended) -> source.sealLeftAlone(ended, thisLook),
                    epoch,
                    ended -> CompletableFuture.completedFuture(null));
            leftBytes = 0;
            for (DirtySource source : sources) {
                leftBytes += source.dirtyBytes();
            }
            ahead.noteSent(Math.max(0, dirtyBytes - leftBytes)); // both are estimates
            dirtyBytes = leftBytes;
        }
    }

    /**
     * Sends all changes; afterwards the server knows everything. When that fails, some changes may be
     * neither sent nor dirty any more, so every later call fails too, also if the job goes on after
     * the exception: the next checkpoint must not succeed without them.
     */
    public void flush() throws IOException, InterruptedException {
        awaitSealed();
        try {
            BatchSink sink = new BatchSink(session, epoch, batchRows, batchBytes);
            for (DirtySource source : sources) {
                source.flush(sink);
            }
            sink.finish();
        } catch (Throwable e) {
            sealed = CompletableFuture.failedFuture(e);
            throw e;
        }
        dirtyBytes = 0;
        leftBytes = 0;
    }

    /**
     * Sends changes of rows of which nothing is cached, unless changes of an ended epoch are still on
     * their way: epochs never decrease.
     *
     * @return whether they were sent
     */
    public boolean sendUncached(EntryBatch changes) throws IOException, InterruptedException {
        if (sealed.isDone()) {
            awaitSealed(); // fails if sending has failed
        } else if (sealedEpoch != epoch) {
            return false;
        }
        if (!changes.isEmpty()) {
            session.write(epoch, changes);
        }
        return true;
    }

    /** Waits until the sealed stages are sent. */
    public void awaitSealed() throws IOException, InterruptedException {
        try {
            sealed.get();
        } catch (ExecutionException e) {
            Throwable cause = e.getCause();
            throw cause instanceof IOException ? (IOException) cause : new IOException(cause);
        }
    }

    /**
     * Ends the epoch. Its changes are sent in the background, then {@code after} runs; the future
     * ends as that does. It fails when sending fails, and then every later call does too.
     */
    public <T> CompletableFuture<T> barrier(AfterEpoch<T> after) {
        long ended = epoch++;
        ahead.nextEpoch(stage + 1);
        dirtyBytes = 0;
        leftBytes = 0;
        long start = System.nanoTime();
        CompletableFuture<T> result = handOver(DirtySource::seal, ended, after);
        result.thenRun(() -> listener.snapshotTaken(System.nanoTime() - start));
        sealed.thenRun(() -> listener.flushed(System.nanoTime() - start));
        return result;
    }

    /** Seals changes of a source at the end of a stage. */
    private interface Seal {
        DirtySource.SealedChanges of(DirtySource source, long endedStage);
    }

    /** Ends the stage; what is sealed, which was changed in an epoch, is sent by the flusher. */
    private <T> CompletableFuture<T> handOver(Seal seal, long writtenEpoch, AfterEpoch<T> after) {
        long endedStage = stage++;
        List<DirtySource.SealedChanges> changes = new ArrayList<>();
        for (DirtySource source : sources) {
            DirtySource.SealedChanges part = seal.of(source, endedStage);
            if (part != null) {
                changes.add(part);
            }
        }
        CompletableFuture<Void> before = sealed;
        CompletableFuture<Void> done = new CompletableFuture<>();
        CompletableFuture<T> result = new CompletableFuture<>();
        sealed = done;
        sealedEpoch = writtenEpoch;
        try {
            flusher.execute(
                    () -> send(writtenEpoch, endedStage, changes, before, done, after, result));
        } catch (RejectedExecutionException e) {
            IOException closed = new IOException("the backend is closed", e);
            done.completeExceptionally(closed);
            result.completeExceptionally(closed);
        }
        return result;
    }

    private <T> void send(
            long writtenEpoch,
            long endedStage,
            List<DirtySource.SealedChanges> changes,
            CompletableFuture<Void> before,
            CompletableFuture<Void> done,
            AfterEpoch<T> after,
            CompletableFuture<T> result) {
        try {
            before.get(); // done already, since this thread did it; fails if that failed
            BatchSink sink = new BatchSink(session, writtenEpoch, batchRows, batchBytes);
            for (DirtySource.SealedChanges part : changes) {
                part.drain(sink);
            }
            sink.finish();
            CompletableFuture<T> answer = after.run(writtenEpoch);
            sentStage = endedStage;
            done.complete(null);
            answer.whenComplete(
                    (value, failure) -> {
                        if (failure == null) {
                            result.complete(value);
                        } else {
                            result.completeExceptionally(failure);
                        }
                    });
        } catch (Throwable e) { // whatever it is must reach the task and the snapshot
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            done.completeExceptionally(cause);
            result.completeExceptionally(cause);
        }
    }

    /** Ends the flusher; waiting calls fail. Any thread; idempotent. */
    @Override
    public void close() {
        flusher.shutdownNow();
    }
}
