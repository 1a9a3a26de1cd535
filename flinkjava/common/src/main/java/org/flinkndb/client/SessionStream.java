package org.flinkndb.client;

import com.google.protobuf.ByteString;

import io.grpc.CallCredentials;
import io.grpc.stub.StreamObserver;

import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;
import org.flinkndb.proto.v1.Attach;
import org.flinkndb.proto.v1.ClientFrame;
import org.flinkndb.proto.v1.FramePart;
import org.flinkndb.proto.v1.ServerFrame;
import org.flinkndb.proto.v1.StateServiceGrpc;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicBoolean;

/** One attached stream of a session, on a connection of its own. Never reused. */
final class SessionStream implements StreamObserver<ServerFrame> {
    private static final int PART_BYTES = 1 << 20;

    private final NdbSettings settings;
    private final CallCredentials credentials;
    private final ServerAddress address;
    private final long sessionId;
    private final String token;
    private final int maxMessageBytes;
    private final Owner owner;
    private final AtomicBoolean over = new AtomicBoolean();

    private volatile Channels.Connection connection;
    private volatile StreamObserver<ClientFrame> out;

    /** Hears of a stream. Called by the connection's thread. */
    interface Owner {
        void received(SessionStream from, ServerFrame frame);

        /** The stream is over; called once at most. */
        void lost(SessionStream from, Throwable cause);
    }

    SessionStream(
            NdbSettings settings,
            CallCredentials credentials,
            ServerAddress address,
            long sessionId,
            String token,
            int maxMessageBytes,
            Owner owner) {
        this.settings = settings;
        this.credentials = credentials;
        this.address = address;
        this.sessionId = sessionId;
        this.token = token;
        this.maxMessageBytes = maxMessageBytes;
        this.owner = owner;
    }

    ServerAddress address() {
        return address;
    }

    /** Connects and asks to be attached. Failures arrive at the owner. */
    void start() {
        try {
            connection = Channels.connect(settings, address);
        } catch (IOException e) {
            ended(e);
            return;
        }
        StateServiceGrpc.StateServiceStub stub = StateServiceGrpc.newStub(connection.channel());
        if (credentials != null) {
            stub = stub.withCallCredentials(credentials);
        }
        out = stub.session(this);
        send(
                ClientFrame.newBuilder()
                        .setAttach(
                                Attach.newBuilder()
                                        .setProtocolVersion(StateSessions.PROTOCOL_VERSION)
                                        .setSessionId(sessionId)
                                        .setSessionToken(token))
                        .build());
    }

    /** Sends a frame; calls must not overlap. On a stream that is over it does nothing. */
    void send(ClientFrame frame) {
        if (over.get()) {
            return;
        }
        try {
            if (frame.getSerializedSize() <= maxMessageBytes) {
                out.onNext(frame);
            } else {
                sendParts(frame);
            }
        } catch (IllegalStateException e) {
            // The call ended meanwhile: its end arrives, or has arrived, through onError.
        }
    }

    /** The server makes room for the whole frame before it takes the second part. */
    private void sendParts(ClientFrame frame) {
        ByteString bytes = frame.toByteString();
        for (int at = 0; at < bytes.size(); at += PART_BYTES) {
            FramePart.Builder part =
                    FramePart.newBuilder()
                            .setData(bytes.substring(at, Math.min(at + PART_BYTES, bytes.size())));
            if (at == 0) {
                part.setTotalBytes(bytes.size());
            }
            out.onNext(ClientFrame.newBuilder().setPart(part).build());
        }
    }

    /** Ends stream and connection. */
    void end() {
        over.set(true);
        Channels.Connection current = connection;
        if (current != null) {
            current.close();
        }
    }

    @Override
    public void onNext(ServerFrame frame) {
        if (!over.get()) {
            owner.received(this, frame);
        }
    }

    @Override
    public void onError(Throwable cause) {
        ended(cause);
    }

    @Override
    public void onCompleted() {
        ended(new IOException("the server ended the stream"));
    }

    private void ended(Throwable cause) {
        if (over.compareAndSet(false, true)) {
            owner.lost(this, cause);
        }
    }
}
