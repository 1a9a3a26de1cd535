package org.flinkndb.snapshot;

import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.state.CheckpointStreamFactory;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupsSavepointStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.SnapshotStrategy;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.flinkndb.backend.BackendCore;
import org.flinkndb.canonical.KeyGroupOffsets;
import org.flinkndb.client.KeyGroupRows;
import org.flinkndb.client.SnapshotClient;
import org.flinkndb.client.SnapshotKind;
import org.flinkndb.client.SnapshotSchema;
import org.flinkndb.client.SnapshotStats;
import org.flinkndb.client.StateSession;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.util.UUID;
import java.util.concurrent.CancellationException;

/**
 * Checkpoints and native savepoints. The synchronous part ends the epoch, which takes constant time;
 * its changes and then the request for the snapshot are sent in the background, whether or not Flink
 * starts the asynchronous part, which only waits.
 */
public final class NdbSnapshotStrategy<K>
        implements SnapshotStrategy<KeyedStateHandle, PendingSnapshot> {
    private static final Logger LOG = LoggerFactory.getLogger(NdbSnapshotStrategy.class);

    private final BackendCore<K> core;
    private final SnapshotKind kind;

    public NdbSnapshotStrategy(BackendCore<K> core, SnapshotKind kind) {
        this.core = core;
        this.kind = kind;
    }

    @Override
    public PendingSnapshot syncPrepareResources(long checkpointId) throws IOException {
        return begin(core, checkpointId, kind);
    }

    static PendingSnapshot begin(BackendCore<?> core, long checkpointId, SnapshotKind kind)
            throws IOException {
        String id = UUID.randomUUID().toString();
        SnapshotSchema schema = core.schema();
        core.cacheAccount().giveBack(); // an operator without input comes by here only
        StateSession session = core.session();
        return new PendingSnapshot(
                id,
                core.writeBehind()
                        .barrier(
                                epoch ->
                                        session.takeSnapshot(
                                                id, epoch, checkpointId, kind, schema)),
                new SnapshotClient(core.settings()));
    }

    @Override
    public SnapshotResultSupplier<KeyedStateHandle> asyncSnapshot(
            PendingSnapshot pending,
            long checkpointId,
            long timestamp,
            CheckpointStreamFactory streamFactory,
            CheckpointOptions options) {
        return registry -> await(pending, registry);
    }

    private SnapshotResult<KeyedStateHandle> await(
            PendingSnapshot pending, CloseableRegistry registry)
            throws IOException, InterruptedException {
        SnapshotStats stats = core.session().await(pending.taken());
        completeKeyGroups(pending, stats.keyGroups());
        Path path = new Path(core.session().snapshotUri(pending.id()));
        if (registry.isClosed() || !pending.handOver()) {
            throw new CancellationException("snapshot cancelled");
        }
        // Of this class, since the heap backend chooses its way to read by it: the file is in the
        // canonical layout.
        return SnapshotResult.of(
                new KeyGroupsSavepointStateHandle(
                        KeyGroupOffsets.of(core.keyGroupRange(), stats.keyGroups()),
                        new FileStateHandle(path, stats.deltaBytes())));
    }

    /**
     * Asks the server where it is not known which key groups are empty: after a restore, and where rows were
     * deleted. A snapshot does not fail for lack of an answer: only other backends need it.
     */
    private void completeKeyGroups(PendingSnapshot pending, KeyGroupRows.View keyGroups)
            throws InterruptedException {
        if (keyGroups.isComplete()) {
            return;
        }
        KeyGroupRange range = core.keyGroupRange();
        try {
            keyGroups.learn(
                    pending.client()
                            .keyGroupsWithRows(
                                    pending.id(),
                                    range.getStartKeyGroup(),
                                    range.getEndKeyGroup()));
        } catch (IOException e) {
            if (Thread.interrupted()) {
                throw new InterruptedException("snapshot cancelled");
            }
            LOG.warn(
                    "It is not known which key groups of snapshot {} are empty; if any is, other"
                            + " state backends cannot read it.",
                    pending.id(),
                    e);
        }
    }
}
