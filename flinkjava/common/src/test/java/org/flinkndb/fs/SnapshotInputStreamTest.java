package org.flinkndb.fs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.StateSerializerProvider;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.apache.flink.runtime.state.restore.FullSnapshotRestoreOperation;
import org.apache.flink.runtime.state.restore.KeyGroup;
import org.apache.flink.runtime.state.restore.KeyGroupEntry;
import org.apache.flink.runtime.state.restore.SavepointRestoreResult;
import org.apache.flink.runtime.state.restore.ThrowingIterator;
import org.apache.flink.util.IOUtils;
import org.flinkndb.canonical.KeyGroupOffsets;
import org.flinkndb.client.OpenSpec;
import org.flinkndb.client.SessionListener;
import org.flinkndb.client.SnapshotKind;
import org.flinkndb.client.SnapshotSchema;
import org.flinkndb.client.StateSession;
import org.flinkndb.client.StateSessions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.testutil.ServerProcess;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicReference;

/** Snapshots opened as files: what is read, and what is refused rather than read wrongly. */
@Timeout(120)
class SnapshotInputStreamTest {
    private static final int GROUPS = 4;
    private static final KeyGroupRange RANGE = KeyGroupRange.of(0, GROUPS - 1);
    private static final int KEYS = 20_000;

    /** Together far more than a connection holds on the way. */
    private static final String TEXT = "some text ".repeat(100);

    @TempDir private java.nio.file.Path folder;
    private ServerProcess server;
    private AbstractKeyedStateBackend<Integer> backend;

    @BeforeEach
    void start() throws Exception {
        server = ServerProcess.start(folder);
        backend = open("ndb", List.of());
    }

    @AfterEach
    void stop() throws Exception {
        backend.dispose();
        server.close();
    }

    private AbstractKeyedStateBackend<Integer> open(String name, List<KeyedStateHandle> handles)
            throws Exception {
        return TestBackends.open(
                TestBackends.named(name, server.address()),
                new JobID(),
                IntSerializer.INSTANCE,
                GROUPS,
                RANGE,
                handles);
    }

    private static ValueState<String> texts(AbstractKeyedStateBackend<Integer> backend)
            throws Exception {
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE,
                VoidNamespaceSerializer.INSTANCE,
                new ValueStateDescriptor<>("text", Types.STRING));
    }

    private void fill(int keys) throws Exception {
        ValueState<String> texts = texts(backend);
        for (int key = 0; key < keys; key++) {
            backend.setCurrentKey(key);
            texts.update(TEXT + key);
        }
    }

    private KeyGroupsStateHandle snapshot() throws Exception {
        return (KeyGroupsStateHandle)
                TestBackends.handleOf(TestBackends.nativeSavepoint(backend, 1));
    }

    private static Path pathOf(KeyGroupsStateHandle handle) {
        return ((FileStateHandle) handle.getDelegateStateHandle()).getFilePath();
    }

    private static ThrowingIterator<KeyGroup> keyGroups(KeyGroupsStateHandle handle)
            throws Exception {
        SavepointRestoreResult result =
                new FullSnapshotRestoreOperation<>(
                                RANGE,
                                SnapshotInputStreamTest.class.getClassLoader(),
                                List.of(handle),
                                StateSerializerProvider.fromNewRegisteredSerializer(
                                        IntSerializer.INSTANCE))
                        .restore()
                        .next();
        return result.getRestoredKeyGroups();
    }

    private static int count(ThrowingIterator<KeyGroup> groups) throws Exception {
        int entries = 0;
        while (groups.hasNext()) {
            try (ThrowingIterator<KeyGroupEntry> group = groups.next().getKeyGroupEntries()) {
                for (; group.hasNext(); entries++) {
                    assertThat(group.next().getValue()).hasSizeGreaterThan(TEXT.length());
                }
            }
        }
        return entries;
    }

    @Test
    void copyingItIsRefused() throws Exception {
        fill(10);
        try (FSDataInputStream in = snapshot().openInputStream()) {
            assertThatThrownBy(() -> IOUtils.copyBytes(in, OutputStream.nullOutputStream(), false))
                    .isInstanceOf(IOException.class)
                    .hasMessageContaining("cannot be copied")
                    .hasMessageContaining("canonical");
        }
    }

    @Test
    void readsWhatIsThereOnly() throws Exception {
        fill(100); // some in each key group
        KeyGroupsStateHandle handle = snapshot();
        try (FSDataInputStream in = handle.openInputStream()) {
            for (long offset :
                    new long[] {-1, 1 << 20, KeyGroupOffsets.of(1) + 1, KeyGroupOffsets.of(4)}) {
                assertThatThrownBy(() -> in.seek(offset)).hasMessageContaining("" + offset);
            }
            int header = in.read();
            // Backwards, and to where it is already.
            for (int group : new int[] {2, 0, 0, 3}) {
                in.seek(KeyGroupOffsets.of(group));
                assertThat(in.getPos()).isEqualTo(KeyGroupOffsets.of(group));
                assertThat(in.read()).as("state 0 in two bytes").isZero();
            }
            in.seek(0);
            assertThat(in.read()).isEqualTo(header);
        }
        assertThat(count(keyGroups(handle))).isEqualTo(100);
    }

    @Test
    void isReadWholeWhenItIsReleasedMeanwhile() throws Exception {
        fill(KEYS);
        KeyGroupsStateHandle handle = snapshot();
        ThrowingIterator<KeyGroup> groups = keyGroups(handle);
        try (ThrowingIterator<KeyGroupEntry> first = groups.next().getKeyGroupEntries()) {
            first.next();
            handle.discardState();
            overwrite();
            int rest = 0;
            for (; first.hasNext(); rest++) {
                first.next();
            }
            assertThat(rest).isEqualTo(rowsOfGroup(0) - 1);
        }
        // The reader goes on to the second group, from where the stream follows the rows of the
        // first.
        assertThat(count(groups)).isEqualTo(KEYS - rowsOfGroup(0));
        groups.close();
        assertThatThrownBy(() -> keyGroups(handle)).isInstanceOf(FileNotFoundException.class);
    }

    private void overwrite() throws Exception {
        ValueState<String> texts = texts(backend);
        for (int key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            texts.clear();
        }
        TestBackends.handleOf(TestBackends.checkpoint(backend, 2));
    }

    private static int rowsOfGroup(int group) {
        int rows = 0;
        for (int key = 0; key < KEYS; key++) {
            if (KeyGroupRangeAssignment.assignToKeyGroup(key, GROUPS) == group) {
                rows++;
            }
        }
        return rows;
    }

    @Test
    void failsWhenTheServerDies() throws Exception {
        fill(KEYS);
        ThrowingIterator<KeyGroup> groups = keyGroups(snapshot());
        server.kill();
        assertThatThrownBy(() -> count(groups)).isInstanceOf(IOException.class);
        groups.close();
        server.restart();
    }

    @Test
    void closingEndsAReadThatWaits() throws Exception {
        fill(KEYS);
        FSDataInputStream in = snapshot().openInputStream();
        in.seek(KeyGroupOffsets.of(0));
        server.freeze();
        AtomicReference<Throwable> ended = new AtomicReference<>();
        Thread reader =
                new Thread(
                        () -> {
                            try {
                                in.readNBytes(Integer.MAX_VALUE);
                            } catch (IOException e) {
                                ended.set(e);
                            }
                        });
        reader.start();
        while (reader.getState() != Thread.State.WAITING) { // until it has read what is on the way
            assertThat(reader.isAlive()).isTrue();
            Thread.onSpinWait();
        }
        in.close();
        reader.join();
        assertThat(ended.get()).isInstanceOf(IOException.class);
        server.thaw();
    }

    /** As the last release did: it did not say which states there are, and had no offsets. */
    @Test
    void snapshotsOfOlderVersionsAreRefused() throws Exception {
        OpenSpec spec = new OpenSpec("a".repeat(32), "job", "operator", "attempt", GROUPS, 0, 3);
        NdbSettings settings =
                NdbSettings.fromConfig(
                        Configuration.fromMap(
                                Map.of("state.backend.ndb.address", server.address())));
        try (StateSession session = StateSessions.open(settings, spec, SessionListener.none())) {
            String id = UUID.randomUUID().toString();
            SnapshotSchema schema = new SnapshotSchema(new byte[] {1}, List.of());
            session.await(session.takeSnapshot(id, 1, 1, SnapshotKind.CHECKPOINT, schema));
            Path path = new Path(session.snapshotUri(id));
            assertThat(FileSystem.get(path.toUri()).exists(path)).isTrue();
            assertThatThrownBy(() -> FileSystem.get(path.toUri()).open(path))
                    .hasMessageContaining("Start the job from it on FlinkNDB");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"rocksdb", "hashmap"})
    void largeValuesAndTimeToLive(String reader) throws Exception {
        StateTtlConfig ttl = StateTtlConfig.newBuilder(Duration.ofHours(1)).build();
        String large = "x".repeat(9 << 20);
        ValueState<String> texts = texts(backend);
        MapState<String, Long> map = ttlMap(backend, ttl);
        for (int key = 0; key < 5; key++) {
            backend.setCurrentKey(key);
            texts.update(key == 3 ? large : "small");
            map.put("at " + key, (long) key);
        }
        KeyedStateHandle handle = snapshot();
        AbstractKeyedStateBackend<Integer> other = open(reader, List.of(handle));
        try {
            for (int key = 0; key < 5; key++) {
                other.setCurrentKey(key);
                assertThat(texts(other).value()).isEqualTo(key == 3 ? large : "small");
                assertThat(ttlMap(other, ttl).get("at " + key)).isEqualTo(key);
            }
        } finally {
            other.dispose();
        }
    }

    private static MapState<String, Long> ttlMap(
            AbstractKeyedStateBackend<Integer> backend, StateTtlConfig ttl) throws Exception {
        MapStateDescriptor<String, Long> descriptor =
                new MapStateDescriptor<>("map", Types.STRING, Types.LONG);
        descriptor.enableTimeToLive(ttl);
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }

    /** The job was restored and never touched the state: it must be there all the same. */
    @ParameterizedTest
    @ValueSource(strings = {"rocksdb", "hashmap"})
    void statesThatNobodyRegistered(String reader) throws Exception {
        fill(50);
        KeyedStateHandle handle = snapshot();
        backend.dispose();
        backend = open("ndb", List.of(handle));
        KeyedStateHandle next = snapshot();
        AbstractKeyedStateBackend<Integer> other = open(reader, List.of(next));
        try {
            for (int key = 0; key < 50; key++) {
                other.setCurrentKey(key);
                assertThat(texts(other).value()).isEqualTo(TEXT + key);
            }
        } finally {
            other.dispose();
        }
    }
}
