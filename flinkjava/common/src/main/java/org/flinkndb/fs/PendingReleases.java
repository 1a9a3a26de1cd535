package org.flinkndb.fs;

import org.flinkndb.client.SnapshotClient;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Releases snapshots whose server does not answer now, later. Flink discards a checkpoint once, and
 * takes no new checkpoint while it waits for that; so a server that is away must not hold it up. What is
 * pending when the process ends stays in the server until an administrator releases it. Thread-safe.
 */
final class PendingReleases {
    private static final Logger LOG = LoggerFactory.getLogger(PendingReleases.class);
    private static final long FIRST_RETRY_MILLIS = 1_000;
    private static final long LAST_RETRY_MILLIS = 60_000;

    /** Above it, a release that fails is an error at once. */
    private static final int MAX_PENDING = 100_000;

    private final ScheduledThreadPoolExecutor retries;

    PendingReleases() {
        retries =
                new ScheduledThreadPoolExecutor(
                        1,
                        task -> {
                            Thread thread = new Thread(task, "flinkndb-releases");
                            thread.setDaemon(true);
                            return thread;
                        });
    }

    /** Releases a snapshot now or, if its server cannot be reached, later. */
    void release(SnapshotClient client, String snapshotId) throws IOException {
        try {
            client.releaseSoon(snapshotId);
        } catch (IOException e) {
            if (!SnapshotClient.isUnreachable(e) || retries.getQueue().size() >= MAX_PENDING) {
                throw e;
            }
            LOG.info("Snapshot {} will be released later: {}", snapshotId, e.getMessage());
            retryLater(client, snapshotId, FIRST_RETRY_MILLIS);
        }
    }

    private void retryLater(SnapshotClient client, String snapshotId, long millis) {
        retries.schedule(
                () -> {
                    try {
                        client.releaseSoon(snapshotId);
                    } catch (IOException | RuntimeException e) {
                        if (SnapshotClient.isUnreachable(e)) {
                            retryLater(client, snapshotId, Math.min(LAST_RETRY_MILLIS, 2 * millis));
                        } else {
                            LOG.warn(
                                    "Snapshot {} could not be released: `flinkndb snapshots"
                                            + " --release` does it.",
                                    snapshotId,
                                    e);
                        }
                    }
                },
                millis,
                TimeUnit.MILLISECONDS);
    }
}
