package org.flinkndb.model;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.StateBackend;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/**
 * Other backends read our checkpoints and native savepoints: all kinds of state, key groups without rows,
 * other numbers of subtasks on either side, while the job that took the snapshot goes on.
 */
class NativeSnapshotTest {
    private static final int ROUNDS = 8;
    private static final int LAST_GROUP = TestedBackend.KEY_GROUPS - 1;

    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @ParameterizedTest
    @ValueSource(strings = {"rocksdb", "rocksdb-heap-timers", "hashmap"})
    void isReadBy(String reader) throws Exception {
        long seed = System.nanoTime();
        try {
            run(new Random(seed), reader);
        } catch (Exception | AssertionError e) {
            throw new AssertionError("seed " + seed, e);
        }
    }

    private static void run(Random random, String reader) throws Exception {
        StateBackend ndb = TestBackends.named("ndb", SERVER.address());
        StateBackend other = TestBackends.named(reader, SERVER.address());
        RandomOperations operations = new RandomOperations(random, true);
        StateModel model = new StateModel();
        JobID job = new JobID();
        List<KeyedStateHandle> taken = List.of();
        for (int round = 0; round < ROUNDS; round++) {
            // A few steps at first: most key groups are empty.
            int steps = round < ROUNDS / 2 ? random.nextInt(20) : random.nextInt(2_000);
            StateModel before = model.copy();
            try (TestedBackend tested = new TestedBackend(ndb, job, taken)) {
                taken = List.of(snapshot(random, tested, round)); // of what nothing is known yet
                steps(steps, operations, tested, model);
                verify(random, other, taken, before);
                taken = List.of(snapshot(random, tested, ROUNDS + round));
                StateModel then = model.copy();
                steps(steps / 2, operations, tested, model);
                verify(random, other, taken, then);
                model = then;
            }
        }
        verifySubtasks(random, ndb, other, taken, model);
    }

    private static void steps(
            int steps, RandomOperations operations, TestedBackend tested, StateModel model)
            throws Exception {
        for (int step = 0; step < steps; step++) {
            operations.step(tested, model);
        }
    }

    /** Our job goes on with several subtasks; the snapshots of all together are read. */
    private static void verifySubtasks(
            Random random,
            StateBackend ndb,
            StateBackend other,
            List<KeyedStateHandle> taken,
            StateModel model)
            throws Exception {
        List<KeyedStateHandle> parts = new ArrayList<>();
        for (KeyGroupRange range : cut(random)) {
            try (TestedBackend tested =
                    new TestedBackend(ndb, new JobID(), range, within(taken, range))) {
                tested.verify(model, RandomOperations.KEYS, RandomOperations.NAMESPACES);
                parts.add(snapshot(random, tested, 1));
            }
        }
        verify(random, other, parts, model);
    }

    private static KeyedStateHandle snapshot(Random random, TestedBackend tested, long id)
            throws Exception {
        return TestBackends.handleOf(
                random.nextBoolean()
                        ? TestBackends.checkpoint(tested.backend, id)
                        : TestBackends.nativeSavepoint(tested.backend, id));
    }

    /** Reads snapshots with any number of subtasks. */
    private static void verify(
            Random random, StateBackend reader, List<KeyedStateHandle> taken, StateModel model)
            throws Exception {
        for (KeyGroupRange range : cut(random)) {
            List<KeyedStateHandle> parts = within(taken, range);
            assertThat(parts).isNotEmpty();
            try (TestedBackend tested = new TestedBackend(reader, new JobID(), range, parts)) {
                tested.verify(model, RandomOperations.KEYS, RandomOperations.NAMESPACES);
            }
        }
    }

    /** One to many ranges that together are all key groups. */
    private static List<KeyGroupRange> cut(Random random) {
        List<KeyGroupRange> ranges = new ArrayList<>();
        int first = 0;
        while (first <= LAST_GROUP) {
            int last =
                    random.nextInt(3) == 0
                            ? LAST_GROUP
                            : first + random.nextInt(LAST_GROUP - first + 1);
            ranges.add(KeyGroupRange.of(first, last));
            first = last + 1;
        }
        return ranges;
    }

    /** What Flink gives a subtask. */
    private static List<KeyedStateHandle> within(
            List<KeyedStateHandle> handles, KeyGroupRange range) {
        List<KeyedStateHandle> parts = new ArrayList<>();
        for (KeyedStateHandle handle : handles) {
            KeyedStateHandle part = handle.getIntersection(range);
            if (part != null) {
                parts.add(part);
            }
        }
        return parts;
    }
}
