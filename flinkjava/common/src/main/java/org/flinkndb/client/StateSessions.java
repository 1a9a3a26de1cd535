package org.flinkndb.client;

import io.grpc.CallCredentials;
import io.grpc.Status;

import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;
import org.flinkndb.proto.v1.Base;
import org.flinkndb.proto.v1.GroupRange;
import org.flinkndb.proto.v1.OpenSessionRequest;
import org.flinkndb.proto.v1.OpenSessionResponse;
import org.flinkndb.proto.v1.StateServiceGrpc;

import java.io.IOException;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;

/** Opens sessions. */
public final class StateSessions {
    /** Version of the wire contract. */
    static final int PROTOCOL_VERSION = 2;

    private static final long RETRY_MILLIS = 100;

    private StateSessions() {}

    /**
     * Opens a session at the first address that answers.
     *
     * @throws StateSessionException when none does within the connect timeout, or a server refuses
     */
    public static StateSession open(NdbSettings settings, OpenSpec spec, SessionListener listener)
            throws IOException, InterruptedException {
        OpenSessionRequest request = request(settings, spec);
        CallCredentials credentials = Channels.credentials(settings);
        List<ServerAddress> addresses = settings.addresses();
        long deadline = System.nanoTime() + settings.connectTimeout().toNanos();
        Throwable last = null;
        for (int i = 0; last == null || System.nanoTime() < deadline; i++) {
            if (i > 0 && i % addresses.size() == 0) {
                TimeUnit.MILLISECONDS.sleep(RETRY_MILLIS);
            }
            ServerAddress address = addresses.get(i % addresses.size());
            Channels.Connection connection = Channels.connect(settings, address);
            try {
                OpenSessionResponse response = call(connection, credentials, request, deadline);
                GrpcStateSession session =
                        new GrpcStateSession(
                                settings, credentials, request, response, address, listener);
                session.start();
                return session;
            } catch (RuntimeException e) {
                if (Thread.interrupted()) {
                    throw new InterruptedException("interrupted while opening a session");
                }
                if (!Failures.temporary(e)) {
                    throw Failures.refused(address, e);
                }
                if (last == null
                        || Status.fromThrowable(e).getCode() != Status.Code.DEADLINE_EXCEEDED) {
                    last = e; // running out of time is not the reason
                }
            } finally {
                connection.close();
            }
        }
        throw Failures.unreachable(addresses, settings.connectTimeout().toString(), last);
    }

    private static OpenSessionResponse call(
            Channels.Connection connection,
            CallCredentials credentials,
            OpenSessionRequest request,
            long deadline) {
        StateServiceGrpc.StateServiceBlockingStub stub =
                StateServiceGrpc.newBlockingStub(connection.channel())
                        .withDeadlineAfter(
                                Math.max(1, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
        if (credentials != null) {
            stub = stub.withCallCredentials(credentials);
        }
        return stub.openSession(request);
    }

    private static OpenSessionRequest request(NdbSettings settings, OpenSpec spec) {
        OpenSessionRequest.Builder request =
                OpenSessionRequest.newBuilder()
                        .setProtocolVersion(PROTOCOL_VERSION)
                        .setClientVersion("flinkndb-java")
                        .setSessionToken(UUID.randomUUID().toString())
                        .setJobId(spec.jobId())
                        .setJobName(spec.jobName())
                        .setOperator(spec.operator())
                        .setAttempt(spec.attempt())
                        .setKeyGroupCount(spec.keyGroups())
                        .setRange(range(spec.firstGroup(), spec.lastGroup()))
                        .setLeaseMs(
                                (int)
                                        Math.min(
                                                Integer.MAX_VALUE,
                                                settings.sessionLease().toMillis()));
        for (OpenSpec.Base base : spec.bases()) {
            request.addBases(
                    Base.newBuilder()
                            .setSnapshotId(base.snapshotId())
                            .setRange(range(base.first(), base.last())));
        }
        return request.build();
    }

    static GroupRange range(int first, int last) {
        return GroupRange.newBuilder().setFirst(first).setLast(last).build();
    }
}
