package org.flinkndb.snapshot;

import org.apache.flink.runtime.state.SnapshotResources;
import org.flinkndb.client.SnapshotClient;
import org.flinkndb.client.SnapshotStats;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A snapshot on its way. Unless it is handed over to Flink, it is released as soon as the server has
 * it, or the session has ended: a cancelled or failed checkpoint must leave nothing behind.
 */
final class PendingSnapshot implements SnapshotResources {
    private static final Logger LOG = LoggerFactory.getLogger(PendingSnapshot.class);

    private final String id;
    private final CompletableFuture<SnapshotStats> taken;
    private final SnapshotClient client;
    private final AtomicBoolean settled = new AtomicBoolean();

    PendingSnapshot(String id, CompletableFuture<SnapshotStats> taken, SnapshotClient client) {
        this.id = id;
        this.taken = taken;
        this.client = client;
    }

    String id() {
        return id;
    }

    SnapshotClient client() {
        return client;
    }

    CompletableFuture<SnapshotStats> taken() {
        return taken;
    }

    /** Flink owns the snapshot from here on; false when it was given up before. */
    boolean handOver() {
        return settled.compareAndSet(false, true);
    }

    /** Gives the snapshot up unless it was handed over. */
    @Override
    public void release() {
        if (settled.compareAndSet(false, true)) {
            // When the request failed, the server may have the snapshot all the same.
            taken.whenComplete((stats, failure) -> releaseInBackground());
        }
    }

    private void releaseInBackground() {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                client.release(id);
                            } catch (IOException e) {
                                LOG.warn(
                                        "Snapshot {} of an aborted checkpoint could not be"
                                                + " released: should it be there, 'flinkndb"
                                                + " snapshots' lists it and releases it.",
                                        id,
                                        e);
                            }
                        },
                        "flinkndb-release");
        thread.setDaemon(true);
        thread.start();
    }
}
