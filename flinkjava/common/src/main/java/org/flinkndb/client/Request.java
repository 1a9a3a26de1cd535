package org.flinkndb.client;

import org.flinkndb.proto.v1.ServerFrame;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;

/** A request without its answer yet. Guarded by the session's lock until it is complete. */
abstract class Request<T> {
    private final CompletableFuture<T> future = new CompletableFuture<>();
    private final long started = System.nanoTime();
    private T answer;
    private StateSessionException error;

    CompletableFuture<T> future() {
        return future;
    }

    /** Takes one frame of the answer; true when it was the last. */
    final boolean accept(ServerFrame frame, SessionListener listener) {
        if (frame.getFrameCase() == ServerFrame.FrameCase.ERROR) {
            error =
                    new StateSessionException(
                            Failures.withoutPrefix(frame.getError().getCode().name()),
                            "state server: " + frame.getError().getMessage(),
                            null);
            return true;
        }
        try {
            return take(frame, listener);
        } catch (IOException e) {
            error = new StateSessionException("INTERNAL", "answer that cannot be read", e);
            return true;
        }
    }

    /** Takes one frame; sets the answer when it was the last, and says so. */
    abstract boolean take(ServerFrame frame, SessionListener listener) throws IOException;

    /** Forgets a part of an answer: it will come again as a whole. */
    void restart() {}

    final void answer(T value) {
        answer = value;
    }

    final void complete(SessionListener listener) {
        listener.roundTrip(System.nanoTime() - started);
        if (error != null) {
            future.completeExceptionally(error);
        } else {
            future.complete(answer);
        }
    }

    final void fail(StateSessionException cause) {
        future.completeExceptionally(cause);
    }

    static long idOf(ServerFrame frame) {
        switch (frame.getFrameCase()) {
            case READ_RESULT:
                return frame.getReadResult().getRequestId();
            case SCAN_RESULT:
                return frame.getScanResult().getRequestId();
            case COUNT_RESULT:
                return frame.getCountResult().getRequestId();
            case SNAPSHOT_RESULT:
                return frame.getSnapshotResult().getRequestId();
            case ERROR:
                return frame.getError().getRequestId();
            default:
                return 0;
        }
    }

    static Request<EntryBatch> rows(int expected) {
        return new Request<>() {
            private EntryBatch rows;

            @Override
            boolean take(ServerFrame frame, SessionListener listener) throws IOException {
                EntryBatch part = Batches.fromWire(frame.getReadResult().getRows());
                listener.received(part.size(), part.dataBytes());
                if (rows == null) {
                    rows = part;
                } else {
                    rows.addAll(part);
                }
                if (!frame.getReadResult().getLast()) {
                    return false;
                }
                if (rows.size() != expected) {
                    throw new IOException(
                            expected + " rows were asked for, " + rows.size() + " came");
                }
                answer(rows);
                return true;
            }

            @Override
            void restart() {
                rows = null;
            }
        };
    }

    static Request<ScanPage> page() {
        return new Request<>() {
            @Override
            boolean take(ServerFrame frame, SessionListener listener) throws IOException {
                EntryBatch rows = Batches.fromWire(frame.getScanResult().getRows());
                listener.received(rows.size(), rows.dataBytes());
                answer(new ScanPage(rows, frame.getScanResult().getDone()));
                return true;
            }
        };
    }

    static Request<Long> count() {
        return new Request<>() {
            @Override
            boolean take(ServerFrame frame, SessionListener listener) {
                answer(frame.getCountResult().getRows());
                return true;
            }
        };
    }

    static Request<SnapshotStats> snapshot(KeyGroupRows.View keyGroups) {
        return new Request<>() {
            @Override
            boolean take(ServerFrame frame, SessionListener listener) {
                answer(
                        new SnapshotStats(
                                frame.getSnapshotResult().getDeltaRows(),
                                frame.getSnapshotResult().getDeltaBytes(),
                                keyGroups));
                return true;
            }
        };
    }
}
