package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.apache.flink.configuration.Configuration;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.testutil.ServerProcess;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Sessions over a real server that is frozen, killed, restarted or never there. */
@Timeout(60)
class SessionFaultsTest {
    @TempDir private Path folder;

    private ServerProcess server;
    private Configuration configuration;

    @BeforeEach
    void start() throws Exception {
        server = ServerProcess.start(folder);
        configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", server.address());
    }

    @AfterEach
    void stop() throws Exception {
        server.thaw();
        server.close();
    }

    /** Puts another server, with flags and an empty store, in the place of the first one. */
    private void serve(String store, String... flags) throws Exception {
        server.close();
        Path other = Files.createDirectory(folder.resolve("other"));
        server = ServerProcess.start(other, store, List.of(flags));
        configuration.setString("state.backend.ndb.address", server.address());
    }

    private StateSession open() throws Exception {
        return StateSessions.open(
                NdbSettings.fromConfig(configuration),
                new OpenSpec(
                        UUID.randomUUID().toString().replace("-", ""),
                        "job",
                        "operator",
                        "attempt",
                        4,
                        0,
                        3),
                SessionListener.none());
    }

    private static EntryBatch row(int state, String key, String value) {
        EntryBatch batch = new EntryBatch();
        batch.add(state, 0, EntryBatch.OP_PUT, bytes(key), bytes(value));
        return batch;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static CompletableFuture<EntryBatch> read(StateSession session, int state, String key) {
        EntryBatch keys = new EntryBatch();
        keys.add(state, 0, EntryBatch.OP_NONE, bytes(key));
        return session.read(keys);
    }

    private static String value(StateSession session, int state, String key) throws Exception {
        EntryBatch answer = session.await(read(session, state, key));
        return answer.op(0) == EntryBatch.OP_PUT
                ? new String(answer.value(0), StandardCharsets.UTF_8)
                : null;
    }

    /** Runs something that blocks in a thread of its own. */
    private static CompletableFuture<Throwable> inThread(CountDownLatch started, Blocking body) {
        CompletableFuture<Throwable> outcome = new CompletableFuture<>();
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                started.countDown();
                                body.run(Thread.currentThread());
                                outcome.complete(null);
                            } catch (Throwable e) {
                                outcome.complete(e);
                            }
                        });
        thread.setDaemon(true);
        thread.start();
        return outcome;
    }

    private interface Blocking {
        void run(Thread self) throws Exception;
    }

    @Test
    void closeUnblocksAWaitingCall() throws Exception {
        StateSession session = open();
        int state = session.registerState("v", StateKind.VALUE);
        server.freeze();
        CountDownLatch started = new CountDownLatch(1);
        CompletableFuture<Throwable> outcome =
                inThread(started, self -> session.await(read(session, state, "k")));
        started.await();
        session.close();
        assertThat(outcome.get(10, TimeUnit.SECONDS))
                .isInstanceOf(IOException.class)
                .hasMessageContaining("closed");
        session.close(); // again, and nothing happens
    }

    @Test
    void interruptionUnblocksAWaitingCall() throws Exception {
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            server.freeze();
            CompletableFuture<Thread> thread = new CompletableFuture<>();
            CompletableFuture<Throwable> outcome =
                    inThread(
                            new CountDownLatch(1),
                            self -> {
                                thread.complete(self);
                                session.await(read(session, state, "k"));
                            });
            thread.get().interrupt();
            assertThat(outcome.get(10, TimeUnit.SECONDS)).isInstanceOf(InterruptedException.class);
        }
    }

    @Test
    void writesWaitForAFrozenServerAndGoOn() throws Exception {
        configuration.setString("state.backend.ndb.write.max-unacknowledged-bytes", "64kb");
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            session.write(1, row(state, "first", "x"));
            assertThat(value(session, state, "first")).isEqualTo("x");
            server.freeze();
            AtomicInteger written = new AtomicInteger();
            CompletableFuture<Throwable> outcome =
                    inThread(
                            new CountDownLatch(1),
                            self -> {
                                for (int i = 0; i < 2000; i++) {
                                    session.write(1, row(state, "k" + i, "v".repeat(1000) + i));
                                    written.incrementAndGet();
                                }
                            });
            assertThatThrownBy(() -> outcome.get(500, TimeUnit.MILLISECONDS))
                    .as("two megabytes do not fit into 64 kB on the way")
                    .isInstanceOf(java.util.concurrent.TimeoutException.class);
            assertThat(written.get() * 1000L).isLessThanOrEqualTo(64 << 10);
            server.thaw();
            assertThat(outcome.get(30, TimeUnit.SECONDS)).isNull();
            for (int i = 0; i < 2000; i += 199) {
                assertThat(value(session, state, "k" + i)).endsWith("v" + i);
            }
        }
    }

    @Test
    void aKilledServerIsAPause() throws Exception {
        try (StateSession session = open()) {
            int value = session.registerState("v", StateKind.VALUE);
            int list = session.registerState("l", StateKind.LIST);
            for (int i = 0; i < 300; i++) {
                EntryBatch batch = row(value, "k", "" + i);
                batch.add(list, 0, EntryBatch.OP_APPEND, bytes("k"), bytes("" + i));
                session.write(1, batch);
                if (i % 100 == 50) {
                    server.kill();
                    server.restart();
                }
            }
            assertThat(value(session, value, "k")).isEqualTo("299");
            StringBuilder all = new StringBuilder("0");
            for (int i = 1; i < 300; i++) {
                all.append(',').append(i);
            }
            assertThat(value(session, list, "k")).isEqualTo(all.toString());
        }
    }

    /**
     * Reads go before writes on their way, unless these change their rows: whatever is read is what was
     * written last, though the server is killed meanwhile and forgets what was not durable.
     */
    @Test
    void readsThatOvertakeSeeAllThatWasWritten() throws Exception {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        int keys = 5000;
        int[] written = new int[keys];
        Map<Integer, CompletableFuture<EntryBatch>> asked = new LinkedHashMap<>();
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            for (int round = 1; round <= 400; round++) {
                EntryBatch batch = new EntryBatch();
                for (int i = 0; i < 200; i++) {
                    int key = random.nextInt(keys);
                    written[key] = round;
                    batch.add(
                            state,
                            0,
                            EntryBatch.OP_PUT,
                            bytes("k" + key),
                            bytes("v".repeat(1000) + round));
                }
                session.write(1, batch);
                if (round % 100 == 50) {
                    server.kill();
                    server.restart();
                }
                asked.clear();
                for (int i = 0; i < 5; i++) {
                    int key = random.nextInt(keys);
                    asked.put(key, read(session, state, "k" + key));
                }
                for (Map.Entry<Integer, CompletableFuture<EntryBatch>> read : asked.entrySet()) {
                    EntryBatch answer = session.await(read.getValue());
                    int expected = written[read.getKey()];
                    assertThat(new String(answer.value(0), StandardCharsets.UTF_8))
                            .as("seed %d, round %d, key %d", seed, round, read.getKey())
                            .isEqualTo(expected == 0 ? "" : "v".repeat(1000) + expected);
                }
            }
        }
    }

    /** What is behind many writes in the connection would wait for seconds. */
    @Test
    void aReadDoesNotWaitForTheWritesBeforeIt() throws Exception {
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            session.write(1, row(state, "k", "x"));
            assertThat(value(session, state, "k")).isEqualTo("x");
            session.write(1, row(state, "k", "y"));
            server.freeze(); // so that all is on its way before anything is answered
            for (int i = 0; i < 250; i++) {
                EntryBatch batch = new EntryBatch();
                for (int j = 0; j < 100; j++) {
                    byte[] value = bytes("v".repeat(1000));
                    batch.add(state, 0, EntryBatch.OP_PUT, bytes("w" + i + "/" + j), value);
                }
                session.write(1, batch);
            }
            List<String> answered = Collections.synchronizedList(new ArrayList<>());
            CompletableFuture<?> inTurn =
                    read(session, state, "w249/0").thenRun(() -> answered.add("in its turn"));
            List<CompletableFuture<?>> others = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                others.add(read(session, state, "o" + i).thenRun(() -> answered.add("ahead")));
            }
            server.thaw();
            session.await(inTurn);
            for (CompletableFuture<?> other : others) {
                session.await(other);
            }
            assertThat(answered.indexOf("in its turn")).isGreaterThan(10); // some may be unlucky
            assertThat(value(session, state, "k")).isEqualTo("y");
        }
    }

    @Test
    void aServerThatStaysAwayFailsTheCall() throws Exception {
        configuration.setString("state.backend.ndb.reconnect-timeout", "1s");
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            server.kill();
            assertThatThrownBy(() -> value(session, state, "k"))
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining("state.backend.ndb.reconnect-timeout")
                    .hasMessageContaining(server.address());
            assertThatThrownBy(() -> session.write(1, row(state, "k", "v")))
                    .isInstanceOf(IOException.class);
            server.restart();
        }
    }

    @Test
    void aServerThatIsNotThereFailsTheOpening() throws Exception {
        configuration.setString("state.backend.ndb.address", "unix://" + folder.resolve("none"));
        configuration.setString("state.backend.ndb.connect-timeout", "1s");
        assertThatThrownBy(this::open)
                .isInstanceOf(IOException.class)
                .hasMessageContaining("state.backend.ndb.address")
                .hasMessageContaining("none")
                .hasMessageContaining("flinkndb serve");
    }

    @Test
    void tlsTowardsAServerWithoutItFailsTheOpening() throws Exception {
        String address;
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            address = "127.0.0.1:" + free.getLocalPort();
        }
        serve("memory:", "--listen", "tcp://" + address);
        configuration.setString("state.backend.ndb.address", address);
        open().close();
        configuration.setString("state.backend.ndb.tls.enabled", "true");
        configuration.setString("state.backend.ndb.connect-timeout", "2s");
        assertThatThrownBy(this::open)
                .isInstanceOf(IOException.class)
                .hasMessageContaining("state.backend.ndb.tls.enabled")
                .hasMessageContaining(address);
    }

    @Test
    void theNextAddressIsTried() throws Exception {
        configuration.setString(
                "state.backend.ndb.address",
                "unix://" + folder.resolve("none") + ";" + server.address());
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            assertThat(value(session, state, "k")).isNull();
        }
    }

    @Test
    void aWrongTokenIsRefused() throws Exception {
        Path right = Files.writeString(folder.resolve("right"), "0123456789abcdef-right");
        Path wrong = Files.writeString(folder.resolve("wrong"), "0123456789abcdef-wrong");
        serve("memory:", "--token-file", right.toString());
        assertThatThrownBy(this::open)
                .hasMessageContaining("state.backend.ndb.token-file")
                .hasMessageContaining("no token");
        configuration.setString("state.backend.ndb.token-file", wrong.toString());
        assertThatThrownBy(this::open)
                .hasMessageContaining("state.backend.ndb.token-file")
                .hasMessageNotContaining("0123456789abcdef");
        configuration.setString("state.backend.ndb.token-file", right.toString());
        open().close();
    }

    @Test
    void aValueAboveTheLimitIsRefusedAndTheSessionGoesOn() throws Exception {
        serve("memory:", "--max-value-bytes", "2000");
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            assertThatThrownBy(() -> session.write(1, row(state, "k", "v".repeat(2001))))
                    .hasMessageContaining("2001")
                    .hasMessageContaining("--max-value-bytes");
            session.write(1, row(state, "k", "v".repeat(2000)));
            assertThat(value(session, state, "k")).hasSize(2000);
        }
    }

    @Test
    void aFrameInPartsSurvivesAKilledServer() throws Exception {
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            String large = "0123456789abcdef".repeat(1 << 19); // 8 MiB
            for (int i = 0; i < 6; i++) {
                session.write(1, row(state, "k" + i, large + i));
                if (i % 2 == 0) {
                    server.kill();
                    server.restart();
                }
            }
            for (int i = 0; i < 6; i++) {
                assertThat(value(session, state, "k" + i)).isEqualTo(large + i);
            }
        }
    }

    @Test
    void aFullServerIsWaitedFor() throws Exception {
        serve("memory:", "--max-sessions", "1");
        configuration.setString("state.backend.ndb.reconnect-timeout", "1s");
        StateSession first = open();
        int state = first.registerState("v", StateKind.VALUE);
        first.write(1, row(state, "k", "v"));
        assertThat(value(first, state, "k")).isEqualTo("v");
        try (StateSession second = open()) {
            second.registerState("v", StateKind.VALUE);
            assertThatThrownBy(() -> value(second, state, "k"))
                    .hasMessageContaining("--max-sessions");
        }
        configuration.setString("state.backend.ndb.reconnect-timeout", "20s");
        try (StateSession third = open()) {
            third.registerState("v", StateKind.VALUE);
            CompletableFuture<EntryBatch> answer = read(third, state, "k");
            assertThat(value(first, state, "k")).isEqualTo("v");
            first.close();
            assertThat(third.await(answer).op(0)).isEqualTo(EntryBatch.OP_DELETE);
        }
    }

    @Test
    void anOlderSessionIsFenced() throws Exception {
        OpenSpec spec = new OpenSpec("a".repeat(32), "job", "operator", "attempt", 4, 0, 3);
        NdbSettings settings = NdbSettings.fromConfig(configuration);
        try (StateSession old = StateSessions.open(settings, spec, SessionListener.none())) {
            int state = old.registerState("v", StateKind.VALUE);
            old.write(1, row(state, "k", "old"));
            String id = snapshot(old, 1);
            OpenSpec next = new OpenSpec("a".repeat(32), "job", "operator", "attempt", 4, 0, 3);
            next.base(id, 0, 3);
            try (StateSession young = StateSessions.open(settings, next, SessionListener.none())) {
                int youngState = young.registerState("v", StateKind.VALUE);
                old.write(2, row(state, "k", "lost"));
                assertThatThrownBy(() -> value(old, state, "k")).hasMessageContaining("fenced");
                assertThat(value(young, youngState, "k")).isEqualTo("old");
            }
        }
    }

    /** A whole database can be lost and come back as of an earlier moment. */
    @Test
    void aStoreThatLostAcknowledgedWritesEndsTheSession() throws Exception {
        Path store = folder.resolve("lossy");
        serve("pebble:" + store);
        try (StateSession session = open()) {
            int state = session.registerState("v", StateKind.VALUE);
            writeDurably(session, 1, row(state, "k", "early"));
            server.kill();
            Path earlier = folder.resolve("earlier");
            copy(store, earlier);
            server.restart();
            writeDurably(session, 2, row(state, "k", "late"));
            server.kill();
            Files.move(store, folder.resolve("lost"));
            Files.move(earlier, store);
            server.restart();
            assertThatThrownBy(() -> snapshot(session, 3))
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining("the store has lost writes");
        }
    }

    private static void writeDurably(StateSession session, long epoch, EntryBatch batch)
            throws Exception {
        session.write(epoch, batch);
        snapshot(session, epoch);
    }

    private static String snapshot(StateSession session, long epoch) throws Exception {
        String id = UUID.randomUUID().toString();
        SnapshotSchema schema = new SnapshotSchema(new byte[0], List.of());
        session.await(session.takeSnapshot(id, epoch, epoch, SnapshotKind.CHECKPOINT, schema));
        return id;
    }

    private static void copy(Path from, Path to) throws IOException {
        List<Path> files;
        try (Stream<Path> all = Files.walk(from)) {
            files = all.collect(Collectors.toList());
        }
        for (Path file : files) {
            Files.copy(file, to.resolve(from.relativize(file).toString()));
        }
    }
}
