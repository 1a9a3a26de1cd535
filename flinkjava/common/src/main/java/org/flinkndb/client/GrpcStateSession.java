package org.flinkndb.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;

import io.grpc.CallCredentials;

import org.flinkndb.config.NdbOptions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;
import org.flinkndb.proto.v1.ClientFrame;
import org.flinkndb.proto.v1.CloseSession;
import org.flinkndb.proto.v1.Count;
import org.flinkndb.proto.v1.Heartbeat;
import org.flinkndb.proto.v1.Limits;
import org.flinkndb.proto.v1.Notify;
import org.flinkndb.proto.v1.OpenSessionRequest;
import org.flinkndb.proto.v1.OpenSessionResponse;
import org.flinkndb.proto.v1.Read;
import org.flinkndb.proto.v1.RegisterState;
import org.flinkndb.proto.v1.Scan;
import org.flinkndb.proto.v1.ScanOrder;
import org.flinkndb.proto.v1.ServerFrame;
import org.flinkndb.proto.v1.TakeSnapshot;
import org.flinkndb.proto.v1.Write;
import org.flinkndb.proto.v1.WriteAck;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A session over gRPC. Frames go out in the order in which the lock is taken, but for reads of rows that
 * no write on its way changes: these go first. What has no answer yet is kept in that order in {@link
 * Outstanding} and sent again on a new stream.
 */
final class GrpcStateSession implements StateSession, SessionStream.Owner {
    private static final Logger LOG = LoggerFactory.getLogger(GrpcStateSession.class);
    private static final long FIRST_BACKOFF_MILLIS = 20;
    private static final long MAX_BACKOFF_MILLIS = 1000;
    private static final long ATTACH_TIMEOUT_SECONDS = 10;
    private static final long CLOSE_MILLIS = 1000;
    private static final String VALUE_FLAG = " (flinkndb serve --max-value-bytes)";

    private final NdbSettings settings;
    private final CallCredentials credentials;
    private final OpenSessionResponse opened;
    private final String token;
    private final SessionListener listener;
    private final SessionLimits limits;
    private final AnswerWait answers;
    private final ScheduledExecutorService timer;

    private final ReentrantLock lock = new ReentrantLock();
    private final Condition acknowledged = lock.newCondition();
    private final Outstanding outstanding = new Outstanding();
    private final List<RegisterState> states = new ArrayList<>();
    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private final KeyGroupRows keyGroupRows;

    // All below are guarded by the lock.
    private ServerAddress address;
    private SessionStream stream;
    private boolean attached;
    private long nextRequest = 1;
    private long nextSeq = 1;
    private long lostSince;
    private long backoffMillis = FIRST_BACKOFF_MILLIS;
    private int attempts;
    private StateSessionException failure;
    private boolean closing;

    GrpcStateSession(
            NdbSettings settings,
            CallCredentials credentials,
            OpenSessionRequest request,
            OpenSessionResponse opened,
            ServerAddress address,
            SessionListener listener) {
        this.settings = settings;
        this.credentials = credentials;
        this.opened = opened;
        this.token = request.getSessionToken();
        this.address = address;
        this.listener = listener;
        this.answers = new AnswerWait(settings.maxSpin());
        this.keyGroupRows =
                new KeyGroupRows(
                        request.getRange().getFirst(),
                        request.getRange().getLast(),
                        opened.getEmpty());
        Limits wire = opened.getLimits();
        this.limits =
                new SessionLimits(
                        wire.getMaxFrameBytes(),
                        wire.getMaxValueBytes(),
                        wire.getMaxKeyBytes(),
                        wire.getMaxBatchRows(),
                        wire.getMaxMessageBytes());
        this.timer =
                Executors.newSingleThreadScheduledExecutor(
                        task -> {
                            Thread thread = new Thread(task, "flinkndb-session");
                            thread.setDaemon(true);
                            return thread;
                        });
    }

    void start() {
        long beat = Math.max(1, opened.getLeaseMs() / 3);
        timer.scheduleWithFixedDelay(this::heartbeat, beat, beat, TimeUnit.MILLISECONDS);
        lock.lock();
        try {
            lostSince = System.nanoTime();
            connect();
        } finally {
            lock.unlock();
        }
    }

    // ------------------------------------------------------------------------------- StateSession

    @Override
    public long sessionId() {
        return opened.getSessionId();
    }

    @Override
    public long generation() {
        return opened.getGeneration();
    }

    @Override
    public SessionLimits limits() {
        return limits;
    }

    @Override
    public void checkSize(int state, int keyBytes, int valueBytes) throws StateSessionException {
        if (valueBytes > limits.maxValueBytes()) {
            throw tooLarge("value", state, valueBytes, limits.maxValueBytes(), VALUE_FLAG);
        }
        if (keyBytes > limits.maxKeyBytes()) {
            throw tooLarge("key", state, keyBytes, limits.maxKeyBytes(), "");
        }
    }

    private StateSessionException tooLarge(
            String what, int state, int found, int allowed, String remedy) {
        String name;
        lock.lock();
        try {
            name = state < states.size() ? states.get(state).getName() : "number " + state;
        } finally {
            lock.unlock();
        }
        return new StateSessionException(
                "VALUE_TOO_LARGE",
                "state '"
                        + name
                        + "': a "
                        + what
                        + " of "
                        + found
                        + " bytes is above the server's limit of "
                        + allowed
                        + remedy,
                null);
    }

    @Override
    public boolean startsEmpty() {
        return opened.getEmpty();
    }

    @Override
    public List<byte[]> baseSchemas() {
        List<byte[]> schemas = new ArrayList<>();
        for (ByteString schema : opened.getBaseSchemasList()) {
            schemas.add(schema.toByteArray());
        }
        return schemas;
    }

    @Override
    public String snapshotUri(String snapshotId) {
        ServerAddress named = settings.handleAddress();
        if (named == null) {
            lock.lock();
            try {
                named = address;
            } finally {
                lock.unlock();
            }
        }
        return named.uriPrefix() + "/refs/" + snapshotId;
    }

    @Override
    public int registerState(String name, StateKind kind) {
        lock.lock();
        try {
            for (RegisterState known : states) {
                boolean sameClass =
                        (known.getKindValue() == StateKind.TIMER.number())
                                == (kind == StateKind.TIMER);
                if (known.getName().equals(name) && sameClass) {
                    return known.getIndex();
                }
            }
            RegisterState state =
                    RegisterState.newBuilder()
                            .setIndex(states.size())
                            .setName(name)
                            .setKindValue(kind.number())
                            .build();
            states.add(state);
            send(ClientFrame.newBuilder().setRegisterState(state).build());
            return state.getIndex();
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void write(long epoch, EntryBatch batch) throws IOException, InterruptedException {
        checkSizes(batch);
        long bytes = batch.dataBytes() + 32L * batch.size();
        Write.Builder write = Write.newBuilder().setEpoch(epoch).setBatch(Batches.toWire(batch));
        RecentWrites.Rows rows = RecentWrites.Rows.of(batch);
        lock.lockInterruptibly();
        try {
            while (failure == null
                    && !closing
                    && outstanding.writeBytes() > 0
                    && outstanding.writeBytes() + bytes > settings.unacknowledgedBytes()) {
                acknowledged.await();
            }
            checkUsable();
            long seq = nextSeq++;
            ClientFrame frame = ClientFrame.newBuilder().setWrite(write.setSeq(seq)).build();
            outstanding.addWrite(seq, frame, rows, bytes);
            keyGroupRows.note(batch);
            sendNext();
        } finally {
            lock.unlock();
        }
        listener.sent(batch.size(), batch.dataBytes());
    }

    private void checkSizes(EntryBatch batch) throws StateSessionException {
        for (int i = 0; i < batch.size(); i++) {
            checkSize(batch.state(i), batch.keyLength(i), batch.valueLength(i));
        }
    }

    @Override
    public CompletableFuture<EntryBatch> read(EntryBatch keys) {
        try {
            checkSizes(keys);
            Read.Builder read = Read.newBuilder().setKeys(Batches.toWire(keys));
            listener.sent(keys.size(), keys.dataBytes());
            return read(read, RecentWrites.Rows.of(keys), Request.rows(keys.size()));
        } catch (IOException e) {
            return failed(e);
        }
    }

    private CompletableFuture<EntryBatch> read(
            Read.Builder read, RecentWrites.Rows rows, Request<EntryBatch> request) {
        lock.lock();
        try {
            if (failure == null && !closing && attached && !outstanding.mayChange(rows)) {
                long id = nextRequest++;
                read.setRequestId(id).setOvertakes(true);
                ClientFrame frame = ClientFrame.newBuilder().setRead(read).build();
                outstanding.addSent(id, frame, request);
                send(frame);
                return request.future();
            }
            return request(
                    id -> ClientFrame.newBuilder().setRead(read.setRequestId(id)).build(), request);
        } finally {
            lock.unlock();
        }
    }

    @Override
    public CompletableFuture<ScanPage> scan(ScanRequest r) {
        Scan.Builder scan =
                Scan.newBuilder()
                        .setState(r.state())
                        .setRange(StateSessions.range(r.firstGroup(), r.lastGroup()))
                        .setPrefix(UnsafeByteOperations.unsafeWrap(r.prefix()))
                        .setOrder(
                                r.keyOrder()
                                        ? ScanOrder.SCAN_ORDER_KEY_GROUP
                                        : ScanOrder.SCAN_ORDER_GROUP_KEY)
                        .setLimitRows(r.limitRows())
                        .setKeysOnly(r.keysOnly());
        if (r.afterKey() != null) {
            scan.setResume(true)
                    .setAfterGroup(r.afterGroup())
                    .setAfterKey(UnsafeByteOperations.unsafeWrap(r.afterKey()));
        }
        return request(
                id -> ClientFrame.newBuilder().setScan(scan.setRequestId(id)).build(),
                Request.page());
    }

    @Override
    public CompletableFuture<Long> count(int state, int firstGroup, int lastGroup) {
        Count.Builder count =
                Count.newBuilder()
                        .setState(state)
                        .setRange(StateSessions.range(firstGroup, lastGroup));
        return request(
                id -> ClientFrame.newBuilder().setCount(count.setRequestId(id)).build(),
                Request.count());
    }

    @Override
    public CompletableFuture<SnapshotStats> takeSnapshot(
            String snapshotId,
            long epoch,
            long checkpointId,
            SnapshotKind kind,
            SnapshotSchema schema) {
        TakeSnapshot.Builder take =
                TakeSnapshot.newBuilder()
                        .setSnapshotId(snapshotId)
                        .setEpoch(epoch)
                        .setCheckpointId(checkpointId)
                        .setKindValue(kind.number())
                        .setSchema(ByteString.copyFrom(schema.bytes()));
        for (int i = 0; i < schema.states().size(); i++) {
            take.addStates(schema.states().get(i).toWire(i));
        }
        lock.lock();
        try {
            take.setLastSeq(nextSeq - 1);
            return request(
                    id -> ClientFrame.newBuilder().setTakeSnapshot(take.setRequestId(id)).build(),
                    Request.snapshot(keyGroupRows.view()));
        } finally {
            lock.unlock();
        }
    }

    @Override
    public void notifyCheckpoint(long checkpointId, boolean completed) {
        Notify notify =
                Notify.newBuilder().setCheckpointId(checkpointId).setCompleted(completed).build();
        lock.lock();
        try {
            if (attached) {
                outstanding.addNotice(ClientFrame.newBuilder().setNotify(notify).build());
                sendNext();
            }
        } finally {
            lock.unlock();
        }
    }

    @Override
    public <T> T await(CompletableFuture<T> future) throws IOException, InterruptedException {
        try {
            return answers.await(future);
        } catch (ExecutionException e) {
            Throwable cause = e.getCause();
            if (cause instanceof StateSessionException) {
                // A new exception, so that the trace shows who waited.
                throw new StateSessionException(
                        ((StateSessionException) cause).code(), cause.getMessage(), cause);
            }
            throw cause instanceof IOException ? (IOException) cause : new IOException(cause);
        }
    }

    @Override
    public void close() {
        SessionStream last;
        List<Request<?>> open;
        lock.lock();
        try {
            if (closing) {
                return;
            }
            closing = true;
            acknowledged.signalAll();
            open = outstanding.takeRequests();
            last = stream;
            if (attached && failure == null) {
                send(ClientFrame.newBuilder().setClose(CloseSession.getDefaultInstance()).build());
            } else {
                closed.complete(null);
            }
        } finally {
            lock.unlock();
        }
        StateSessionException ended =
                new StateSessionException("CLOSED", "the session was closed", null);
        awaitClosed(); // then the snapshots that were asked for are there, and can be released
        open.forEach(request -> request.fail(ended));
        timer.shutdownNow();
        if (last != null) {
            last.end();
        }
    }

    private void awaitClosed() {
        try {
            closed.get(CLOSE_MILLIS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException | ExecutionException e) {
            LOG.debug("The server did not confirm the end of session {}", sessionId(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    // ----------------------------------------------------------------------------------- requests

    /** Makes a frame for a request id. */
    private interface FrameMaker {
        ClientFrame make(long requestId);
    }

    private <T> CompletableFuture<T> request(FrameMaker maker, Request<T> request) {
        lock.lock();
        try {
            if (failure != null || closing) {
                return failed(whyUnusable());
            }
            long id = nextRequest++;
            ClientFrame frame = maker.make(id);
            outstanding.addRequest(id, frame, request);
            sendNext();
            return request.future();
        } finally {
            lock.unlock();
        }
    }

    private static <T> CompletableFuture<T> failed(IOException e) {
        CompletableFuture<T> future = new CompletableFuture<>();
        future.completeExceptionally(e);
        return future;
    }

    private void checkUsable() throws StateSessionException {
        if (failure != null || closing) {
            throw whyUnusable();
        }
    }

    private StateSessionException whyUnusable() {
        return failure != null
                ? new StateSessionException(failure.code(), failure.getMessage(), failure)
                : new StateSessionException("CLOSED", "the session was closed", null);
    }

    /** Sends what has its turn, if a stream is attached. */
    private void sendNext() {
        if (attached) {
            outstanding.sendNext(stream::send);
        }
    }

    /** Sends now if a stream is attached; what must not be lost is among the outstanding anyway. */
    private void send(ClientFrame frame) {
        if (attached) {
            stream.send(frame);
        }
    }

    private void heartbeat() {
        lock.lock();
        try {
            send(ClientFrame.newBuilder().setHeartbeat(Heartbeat.getDefaultInstance()).build());
        } finally {
            lock.unlock();
        }
    }

    // --------------------------------------------------------------------------------- the stream

    /** Starts a stream to the current address. Lock held. */
    private void connect() {
        attempts++;
        SessionStream fresh =
                new SessionStream(
                        settings,
                        credentials,
                        address,
                        sessionId(),
                        token,
                        limits.maxMessageBytes(),
                        this);
        stream = fresh;
        fresh.start();
        timer.schedule(() -> attachTimeout(fresh), ATTACH_TIMEOUT_SECONDS, TimeUnit.SECONDS);
    }

    private void attachTimeout(SessionStream which) {
        lock.lock();
        boolean late;
        try {
            late = which == stream && !attached;
        } finally {
            lock.unlock();
        }
        if (late) {
            lost(which, new IOException("no answer within " + ATTACH_TIMEOUT_SECONDS + " s"));
        }
    }

    @Override
    public void received(SessionStream from, ServerFrame frame) {
        switch (frame.getFrameCase()) {
            case ATTACHED:
                onAttached(
                        from,
                        frame.getAttached().getAppliedSeq(),
                        frame.getAttached().getDurableSeq());
                return;
            case WRITE_ACK:
                onWritten(from, frame.getWriteAck());
                return;
            case CLOSED:
                closed.complete(null);
                return;
            case HEARTBEAT_ACK:
                return;
            case ERROR:
                if (frame.getError().getRequestId() == 0) {
                    onError(from, frame);
                    return;
                }
                break;
            default:
                break;
        }
        onAnswer(from, frame);
    }

    private void onAttached(SessionStream from, long applied, long durable) {
        StateSessionException loss = null;
        lock.lock();
        try {
            if (from != stream) {
                return;
            }
            if (applied < outstanding.durableSeq()) {
                loss = lostWrites(applied);
            } else {
                goOn(applied, durable);
            }
        } finally {
            lock.unlock();
        }
        if (loss != null) {
            fail(from, loss);
        }
    }

    /** The whole database was lost, and came back as of an earlier moment. Lock held. */
    private StateSessionException lostWrites(long applied) {
        return new StateSessionException(
                "SESSION_NOT_FOUND",
                "the store has lost writes: "
                        + outstanding.durableSeq()
                        + " were acknowledged as durable, it has "
                        + applied,
                null);
    }

    /** Sends on a new stream what the server does not have. Lock held. */
    private void goOn(long applied, long durable) {
        attached = true;
        backoffMillis = FIRST_BACKOFF_MILLIS;
        outstanding.durable(durable);
        acknowledged.signalAll();
        for (RegisterState state : states) {
            send(ClientFrame.newBuilder().setRegisterState(state).build());
        }
        outstanding.restart(applied);
        sendNext();
    }

    private void onWritten(SessionStream from, WriteAck ack) {
        lock.lock();
        try {
            if (from != stream) {
                return;
            }
            outstanding.applied(ack.getAppliedSeq());
            if (ack.getDurableSeq() > 0) {
                outstanding.durable(ack.getDurableSeq());
                acknowledged.signalAll();
            }
            if (!closing) {
                sendNext();
            }
        } finally {
            lock.unlock();
        }
    }

    private void onAnswer(SessionStream from, ServerFrame frame) {
        Request<?> request;
        boolean last;
        lock.lock();
        try {
            if (from != stream) {
                return; // the newer stream asks again
            }
            long id = Request.idOf(frame);
            request = outstanding.request(id);
            if (request == null) {
                return;
            }
            last = request.accept(frame, listener);
            if (last) {
                outstanding.remove(id);
            }
        } finally {
            lock.unlock();
        }
        if (last) {
            request.complete(listener);
        }
    }

    private void onError(SessionStream from, ServerFrame frame) {
        String code = Failures.withoutPrefix(frame.getError().getCode().name());
        String message = "state server: " + frame.getError().getMessage();
        StateSessionException error = new StateSessionException(code, message, null);
        if (frame.getError().getFatal()) {
            fail(from, error);
        } else {
            lost(from, error);
        }
    }

    @Override
    public void lost(SessionStream from, Throwable cause) {
        lock.lock();
        try {
            if (from != stream || failure != null || closing) {
                closed.complete(null);
                return;
            }
            if (attached) {
                LOG.info(
                        "Session {}: connection to {} lost ({}), reconnecting",
                        sessionId(),
                        address,
                        cause.toString());
                lostSince = System.nanoTime();
                listener.reconnecting();
            }
            attached = false;
            outstanding.restartAnswers();
        } finally {
            lock.unlock();
        }
        from.end();
        if (!Failures.temporary(cause) && !(cause instanceof IOException)) {
            fail(from, Failures.refused(from.address(), cause));
            return;
        }
        long waited = System.nanoTime() - lostSince;
        if (waited > settings.reconnectTimeout().toNanos()) {
            fail(
                    from,
                    Failures.unreachable(
                            settings.addresses(),
                            settings.reconnectTimeout()
                                    + " ("
                                    + NdbOptions.RECONNECT_TIMEOUT.key()
                                    + ")",
                            cause));
            return;
        }
        reconnectLater();
    }

    private void reconnectLater() {
        lock.lock();
        try {
            if (closing || failure != null) {
                return;
            }
            address = settings.addresses().get(attempts % settings.addresses().size());
            long pause = ThreadLocalRandom.current().nextLong(backoffMillis / 2, backoffMillis + 1);
            backoffMillis = Math.min(MAX_BACKOFF_MILLIS, backoffMillis * 2);
            timer.schedule(this::reconnect, pause, TimeUnit.MILLISECONDS);
        } finally {
            lock.unlock();
        }
    }

    private void reconnect() {
        lock.lock();
        try {
            if (!closing && failure == null) {
                connect();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Ends the session for good. */
    private void fail(SessionStream from, StateSessionException error) {
        List<Request<?>> open;
        lock.lock();
        try {
            if (from != stream || failure != null) {
                return;
            }
            failure = error;
            attached = false;
            open = outstanding.takeRequests();
            acknowledged.signalAll();
        } finally {
            lock.unlock();
        }
        LOG.warn("Session {} has ended: {}", sessionId(), error.getMessage());
        open.forEach(request -> request.fail(error));
        closed.complete(null);
        from.end();
    }
}
