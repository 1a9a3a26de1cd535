package org.flinkndb.client;

import io.grpc.CallCredentials;

import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;
import org.flinkndb.proto.v1.GetSnapshotRequest;
import org.flinkndb.proto.v1.ReadSnapshotRequest;
import org.flinkndb.proto.v1.ReadSnapshotResponse;
import org.flinkndb.proto.v1.ReleaseSnapshotRequest;
import org.flinkndb.proto.v1.StateEntry;
import org.flinkndb.proto.v1.StateServiceGrpc;

import java.io.Closeable;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Calls about snapshots, outside of a session: what the file system and canonical savepoints need.
 * Each call connects by itself; all are idempotent and may be made by any thread.
 */
public final class SnapshotClient {
    private static final Duration SOON = Duration.ofSeconds(2);

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
        Duration timeout = settings.connectTimeout();
        return release(snapshotId, timeout.compareTo(SOON) < 0 ? timeout : SOON);
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

    /** The schema of a snapshot, or null when it does not exist. */
    public byte[] schema(String snapshotId) throws IOException {
        try {
            return call(
                    settings.connectTimeout(),
                    stub ->
                            stub.getSnapshot(
                                            GetSnapshotRequest.newBuilder()
                                                    .setSnapshotId(snapshotId)
                                                    .build())
                                    .getSchema()
                                    .toByteArray());
        } catch (StateSessionException e) {
            if (e.code().equals("SNAPSHOT_NOT_FOUND")) {
                return null;
            }
            throw e;
        }
    }

    /** Reads all rows that a snapshot sees, by key group, state and key. Close it. */
    public Rows read(String snapshotId) throws IOException {
        ServerAddress address = settings.addresses().get(0);
        Channels.Connection connection = Channels.connect(settings, address);
        try {
            Iterator<ReadSnapshotResponse> messages =
                    stub(connection, Channels.credentials(settings))
                            .readSnapshot(
                                    ReadSnapshotRequest.newBuilder()
                                            .setSnapshotId(snapshotId)
                                            .build());
            return new Rows(connection, address, messages);
        } catch (RuntimeException | IOException e) {
            connection.close();
            throw e instanceof IOException ? (IOException) e : Failures.refused(address, e);
        }
    }

    /** A call on a stub. */
    private interface Call<T> {
        T on(StateServiceGrpc.StateServiceBlockingStub stub);
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

    /** A state of a snapshot; entries name it by its place in the list. */
    public static final class State {
        private final String name;
        private final boolean timer;

        private State(String name, boolean timer) {
            this.name = name;
            this.timer = timer;
        }

        public String name() {
            return name;
        }

        /** Timers have names of their own. */
        public boolean timer() {
            return timer;
        }
    }

    /** The rows of a snapshot, batch by batch. For one thread. */
    public static final class Rows implements Closeable {
        private final Channels.Connection connection;
        private final ServerAddress address;
        private final Iterator<ReadSnapshotResponse> messages;
        private final List<State> states = new ArrayList<>();

        private Rows(
                Channels.Connection connection,
                ServerAddress address,
                Iterator<ReadSnapshotResponse> messages) {
            this.connection = connection;
            this.address = address;
            this.messages = messages;
            for (StateEntry state : messages.next().getHeader().getStatesList()) {
                states.add(
                        new State(
                                state.getName(), state.getKindValue() == StateKind.TIMER.number()));
            }
        }

        public List<State> states() {
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
