package org.flinkndb.snapshot;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.configuration.Configuration;
import org.flinkndb.client.OpenSpec;
import org.flinkndb.client.SessionListener;
import org.flinkndb.client.SnapshotClient;
import org.flinkndb.client.SnapshotKind;
import org.flinkndb.client.SnapshotSchema;
import org.flinkndb.client.StateKind;
import org.flinkndb.client.StateSession;
import org.flinkndb.client.StateSessions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.testutil.ServerProcess;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** Snapshots that Flink gives up, on a real server. */
@Timeout(60)
class PendingSnapshotTest {
    private static final String RECORDED = "flinkndb_snapshot_seconds_count";

    @TempDir private Path folder;

    /** A job is cancelled when the server has been asked for a snapshot and has not answered. */
    @Test
    void aSnapshotOnItsWayWhenTheSessionClosesIsReleased() throws Exception {
        try (ServerProcess server = ServerProcess.start(folder)) {
            Configuration configuration =
                    Configuration.fromMap(Map.of("state.backend.ndb.address", server.address()));
            NdbSettings settings = NdbSettings.fromConfig(configuration);
            OpenSpec spec = new OpenSpec("a".repeat(32), "job", "operator", "attempt", 4, 0, 3);
            StateSession session = StateSessions.open(settings, spec, SessionListener.none());
            session.await(session.count(session.registerState("v", StateKind.VALUE), 0, 3));
            SnapshotClient client = new SnapshotClient(settings);
            String id = UUID.randomUUID().toString();
            server.freeze();
            PendingSnapshot pending =
                    new PendingSnapshot(
                            id,
                            session.takeSnapshot(
                                    id,
                                    1,
                                    1,
                                    SnapshotKind.CHECKPOINT,
                                    new SnapshotSchema(new byte[0], List.of())),
                            client);
            pending.release();
            Thread closing = new Thread(session::close);
            closing.start();
            while (closing.getState() != Thread.State.TIMED_WAITING) { // for the server
                assertThat(closing.isAlive()).isTrue();
                Thread.onSpinWait();
            }
            server.thaw();
            closing.join();
            assertThat(pending.taken()).isCompletedExceptionally();
            assertThat(server.counter(RECORDED)).isEqualTo(1);
            while (client.find(id) != null) {
                Thread.onSpinWait();
            }
        }
    }
}
