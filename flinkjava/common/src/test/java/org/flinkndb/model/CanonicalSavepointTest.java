package org.flinkndb.model;

import org.apache.flink.api.common.JobID;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.checkpoint.SavepointType;
import org.apache.flink.runtime.state.CheckpointStorageLocationReference;
import org.apache.flink.runtime.state.FullSnapshotResources;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SavepointResources;
import org.apache.flink.runtime.state.SavepointSnapshotStrategy;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.SnapshotStrategyRunner;
import org.apache.flink.runtime.state.memory.MemCheckpointStreamFactory;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.List;
import java.util.Random;
import java.util.concurrent.RunnableFuture;

/**
 * Moves all kinds of state between backends in Flink's canonical savepoint format, and goes on
 * working with them: from RocksDB and from the heap to ours, and back.
 */
class CanonicalSavepointTest {
    private static final int STEPS = 6_000;

    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @ParameterizedTest
    @CsvSource({"rocksdb, ndb, rocksdb", "hashmap, ndb, hashmap", "ndb, ndb, rocksdb"})
    void movesBetweenBackends(String first, String second, String third) throws Exception {
        long seed = System.nanoTime();
        try {
            Random random = new Random(seed);
            // Flink's heap backend cannot write null map values into a canonical savepoint.
            RandomOperations operations = new RandomOperations(random, !first.equals("hashmap"));
            StateModel model = new StateModel();
            KeyedStateHandle savepoint = null;
            for (String name : new String[] {first, second, third}) {
                List<KeyedStateHandle> handles = savepoint == null ? List.of() : List.of(savepoint);
                try (TestedBackend tested =
                        new TestedBackend(
                                TestBackends.named(name, SERVER.address()), new JobID(), handles)) {
                    tested.verify(model, RandomOperations.KEYS, RandomOperations.NAMESPACES);
                    for (int step = 0; step < STEPS; step++) {
                        operations.step(tested, model);
                    }
                    savepoint = savepoint(tested);
                }
            }
            try (TestedBackend tested =
                    new TestedBackend(
                            TestBackends.named(first, SERVER.address()),
                            new JobID(),
                            List.of(savepoint))) {
                tested.verify(model, RandomOperations.KEYS, RandomOperations.NAMESPACES);
            }
        } catch (Exception | AssertionError e) {
            throw new AssertionError("seed " + seed, e);
        }
    }

    /** What Flink does for a canonical savepoint. */
    private static KeyedStateHandle savepoint(TestedBackend tested) throws Exception {
        SavepointResources<Integer> resources = tested.backend.savepoint();
        FullSnapshotResources<Integer> snapshot = resources.getSnapshotResources();
        RunnableFuture<SnapshotResult<KeyedStateHandle>> future =
                new SnapshotStrategyRunner<>(
                                "savepoint",
                                new SavepointSnapshotStrategy<>(snapshot),
                                new CloseableRegistry(),
                                resources.getPreferredSnapshotExecutionType())
                        .snapshot(
                                1,
                                1,
                                new MemCheckpointStreamFactory(64 << 20),
                                new CheckpointOptions(
                                        SavepointType.savepoint(SavepointFormatType.CANONICAL),
                                        CheckpointStorageLocationReference.getDefault()));
        return TestBackends.handleOf(future);
    }
}
