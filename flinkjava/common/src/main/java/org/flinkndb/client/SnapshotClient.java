package org.flinkndb.client;

import io.grpc.CallCredentials;

import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;
import org.flinkndb.proto.v1.GetSnapshotRequest;
import org.flinkndb.proto.v1.ReadSnapshotRequest;
import org.flinkndb.proto.v1.ReadSnapshotResponse;
import org.flinkndb.proto.v1.ReleaseSnapshotRequest;
import org.flinkndb.proto.v1.SnapshotInfo;
import org.flinkndb.proto.v1.StateEntry;
import org.flinkndb.proto.v1.StateServiceGrpc;

import java.io.Closeable;
import java.io.IOException;
import java.time.Duration;
import java.util.BitSet;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * Calls about snapshots, outside of a session: what the file system and canonical savepoints need.
 * Each call connects by itself; all are idempotent and may be made by any thread.
 */
public final class SnapshotClient {
    private static final Duration SOON = Duration.ofSeconds(2);

    /** A checkpoint waits for it. */
    private static final Duration KEY_GROUPS = Duration.ofSeconds(10);

    private final NdbSettings settings;

    public SnapshotClient(NdbSettings settings) {
        this.settings = settings;
    }

    /** Releases a snapshot; false when it did not exist. */
    public boolean release(String snapshotId) throws IOException {
        return release(snapshotId, settings.connectTimeout());
    }

    /** As {@link #release}, without waiting long for a server that is away. */
    public boolean releaseSoon(String snapshotId) throws IOException {
        return release(snapshotId, atMost(SOON));
    }

    private Duration atMost(Duration limit) {
        Duration timeout = settings.connectTimeout();
        return timeout.compareTo(limit) < 0 ? timeout : limit;
    }

    /** Whether a failure says that no server answered: another try may succeed. */
    public static boolean isUnreachable(Throwable failure) {
        return failure instanceof StateSessionException
                && ((StateSessionException) failure).code().equals(Failures.UNAVAILABLE);
    }

    private boolean release(String snapshotId, Duration timeout) throws IOException {
        return call(
                timeout,
                stub ->
                        stub.releaseSnapshot(
                                        ReleaseSnapshotRequest.newBuilder()
                                                .setSnapshotId(snapshotId)
                                                .build())
                                .getExisted());
    }

    /** Looks a snapshot up; null when it does not exist. */
    public Description find(String snapshotId) throws IOException {
        try {
            return call(
                    settings.connectTimeout(),
                    stub ->
                            new Description(
                                    stub.getSnapshot(
                                            GetSnapshotRequest.newBuilder()
                                                    .setSnapshotId(snapshotId)
                                                    .build())));
        } catch (StateSessionException e) {
            if (e.code().equals("SNAPSHOT_NOT_FOUND")) {
                return null;
            }
            throw e;
        }
    }

    /**
     * Which of a snapshot's key groups have rows. The server looks for one row in each, so it takes a
     * moment even if there are many.
     */
    public BitSet keyGroupsWithRows(String snapshotId, int firstGroup, int lastGroup)
            throws IOException {
        return call(
                atMost(KEY_GROUPS),
                stub -> {
                    Iterator<ReadSnapshotResponse> messages =
                            stub.readSnapshot(
                                    readRequest(snapshotId, firstGroup, lastGroup)
                                            .setGroupsOnly(true)
                                            .build());
                    if (messages.next().getHeader().getInfo().getStatesCount() == 0) {
                        throw new IOException("the state server is older than this client");
                    }
                    BitSet groups = new BitSet();
                    while (messages.hasNext()) {
                        EntryBatch rows = Batches.fromWire(messages.next().getRows());
                        for (int i = 0; i < rows.size(); i++) {
                            groups.set(rows.group(i));
                        }
                    }
                    return groups;
                });
    }

    private static ReadSnapshotRequest.Builder readRequest(
            String snapshotId, int firstGroup, int lastGroup) {
        return ReadSnapshotRequest.newBuilder()
                .setSnapshotId(snapshotId)
                .setRange(StateSessions.range(firstGroup, lastGroup));
    }

    /**
     * Reads all rows that a snapshot sees in the key groups first..last, by key group, state and key. The
     * snapshot may be released meanwhile. Close it.
     */
    public Rows read(String snapshotId, int firstGroup, int lastGroup) throws IOException {
        CallCredentials credentials = Channels.credentials(settings);
        ReadSnapshotRequest request = readRequest(snapshotId, firstGroup, lastGroup).build();
        Throwable last = null;
        for (ServerAddress address : settings.addresses()) {
            Channels.Connection connection = Channels.connect(settings, address);
            try {
                return new Rows(
                        connection, address, stub(connection, credentials).readSnapshot(request));
            } catch (RuntimeException e) {
                connection.close();
                if (!Failures.temporary(e)) {
                    throw Failures.refused(address, e);
                }
                last = e;
            }
        }
        throw Failures.unreachable(settings.addresses(), "the first try", last);
    }

    /** A call on a stub. */
    private interface Call<T> {
        T on(StateServiceGrpc.StateServiceBlockingStub stub) throws IOException;
    }

    /** Tries the addresses in turn, each for so long. */
    private <T> T call(Duration timeout, Call<T> call) throws IOException {
        CallCredentials credentials = Channels.credentials(settings);
        Throwable last = null;
        for (ServerAddress address : settings.addresses()) {
            Channels.Connection connection = Channels.connect(settings, address);
            try {
                return call.on(
                        stub(connection, credentials)
                                .withWaitForReady()
                                .withDeadlineAfter(timeout.toMillis(), TimeUnit.MILLISECONDS));
            } catch (RuntimeException e) {
                if (!Failures.temporary(e)) {
                    throw Failures.refused(address, e);
                }
                last = e;
            } finally {
                connection.close();
            }
        }
        throw Failures.unreachable(settings.addresses(), timeout.toString(), last);
    }

    private static StateServiceGrpc.StateServiceBlockingStub stub(
            Channels.Connection connection, CallCredentials credentials) {
        StateServiceGrpc.StateServiceBlockingStub stub =
                StateServiceGrpc.newBlockingStub(connection.channel());
        return credentials == null ? stub : stub.withCallCredentials(credentials);
    }

    /** A snapshot as the server describes it. */
    public static final class Description {
        private final SnapshotInfo info;

        private Description(SnapshotInfo info) {
            this.info = info;
        }

        public SnapshotSchema schema() {
            return new SnapshotSchema(info.getSchema().toByteArray(), states(info.getStatesList()));
        }

        /** Flink's maximum parallelism. */
        public int keyGroupCount() {
            return info.getKeyGroupCount();
        }

        public int firstGroup() {
            return info.getRange().getFirst();
        }

        public int lastGroup() {
            return info.getRange().getLast();
        }
    }

    private static List<StateName> states(List<StateEntry> entries) {
        return entries.stream().map(StateName::fromWire).collect(Collectors.toList());
    }

    /** The rows of a snapshot, batch by batch. For one thread. */
    public static final class Rows implements Closeable {
        private final Channels.Connection connection;
        private final ServerAddress address;
        private final Iterator<ReadSnapshotResponse> messages;
        private final List<StateName> states;

        private Rows(
                Channels.Connection connection,
                ServerAddress address,
                Iterator<ReadSnapshotResponse> messages) {
            this.connection = connection;
            this.address = address;
            this.messages = messages;
            this.states = SnapshotClient.states(messages.next().getHeader().getStatesList());
        }

        /** The states whose rows these are: entries name them by their place. */
        public List<StateName> states() {
            return states;
        }

        /** The next batch, or null at the end. */
        public EntryBatch next() throws IOException {
            try {
                return messages.hasNext() ? Batches.fromWire(messages.next().getRows()) : null;
            } catch (RuntimeException e) {
                throw Failures.refused(address, e);
            }
        }

        @Override
        public void close() {
            connection.close();
        }
    }
}
