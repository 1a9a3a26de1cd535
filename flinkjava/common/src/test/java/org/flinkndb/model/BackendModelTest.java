package org.flinkndb.model;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.util.ExceptionUtils;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.client.StateSessionException;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.RunnableFuture;

/**
 * Random operations on all kinds of state, snapshots while they go on, restores of older snapshots and
 * kills of the server, against plain maps. Small caches and batches make eviction, flushing and
 * fetching frequent. A failure names its seed; put it into {@link #seed} to repeat the run.
 */
class BackendModelTest {
    private static final int STEPS = 12_000;

    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private final ExecutorService snapshots = Executors.newCachedThreadPool();

    /** A snapshot on its way, and what it must contain. */
    private static final class Taken {
        private final Future<KeyedStateHandle> handle;
        private final StateModel model;

        private Taken(Future<KeyedStateHandle> handle, StateModel model) {
            this.handle = handle;
            this.model = model;
        }
    }

    private static long seed() {
        return System.nanoTime();
    }

    @ParameterizedTest
    @CsvSource({
        "LAZY, 20kb, 1kb",
        "LAZY, 300kb, 64kb",
        "LAZY, 64mb, 64mb",
        "EAGER, 20kb, 1kb",
        "EAGER, 300kb, 64kb",
        "EAGER, 64mb, 64mb",
    })
    void behavesAsItsModel(NdbOptions.Recovery recovery, String cache, String dirty)
            throws Exception {
        long seed = seed();
        try {
            run(new Random(seed), backend(recovery, cache, dirty));
        } catch (Exception | AssertionError e) {
            throw new AssertionError("seed " + seed, e);
        } finally {
            snapshots.shutdownNow();
        }
    }

    private static NdbStateBackend backend(NdbOptions.Recovery recovery, String cache, String dirty)
            throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", SERVER.address());
        configuration.set(NdbOptions.RECOVERY, recovery);
        configuration.set(NdbOptions.CACHE_SIZE, MemorySize.parse(cache));
        configuration.set(NdbOptions.DIRTY_BYTES, MemorySize.parse(dirty));
        configuration.set(NdbOptions.BATCH_ROWS, 7);
        return new NdbStateBackendFactory()
                .createFromConfig(configuration, BackendModelTest.class.getClassLoader());
    }

    private void run(Random random, NdbStateBackend factory) throws Exception {
        JobID job = new JobID();
        RandomOperations operations = new RandomOperations(random, true);
        List<Taken> taken = new ArrayList<>();
        StateModel model = new StateModel();
        TestedBackend tested = new TestedBackend(factory, job, List.of());
        try {
            for (int step = 1; step <= STEPS; step++) {
                operations.step(tested, model);
                if (random.nextInt(100) == 0) {
                    taken.add(take(tested, model, step));
                }
                if (random.nextInt(500) == 0) {
                    tested.verify(model, RandomOperations.KEYS, RandomOperations.NAMESPACES);
                }
                if (random.nextInt(2000) == 0) {
                    SERVER.server().kill();
                    SERVER.server().restart();
                }
                if (random.nextInt(400) == 0 && !taken.isEmpty()) {
                    Taken base = taken.get(random.nextInt(taken.size()));
                    KeyedStateHandle handle = base.handle.get();
                    if (random.nextBoolean()) {
                        tested.close(); // else the older attempt is fenced
                    }
                    TestedBackend restored = new TestedBackend(factory, job, List.of(handle));
                    tested.close();
                    tested = restored;
                    model = base.model.copy();
                    taken.removeIf(BackendModelTest::cutOff);
                    forget(taken, random);
                }
            }
            tested.verify(model, RandomOperations.KEYS, RandomOperations.NAMESPACES);
        } finally {
            tested.close();
        }
    }

    private Taken take(TestedBackend tested, StateModel model, int id) throws Exception {
        RunnableFuture<SnapshotResult<KeyedStateHandle>> future =
                TestBackends.checkpoint(tested.backend, id);
        Future<KeyedStateHandle> handle = snapshots.submit(() -> TestBackends.handleOf(future));
        return new Taken(handle, model.copy());
    }

    /** Whether a snapshot did not come about because its backend was closed, or fenced, before. */
    private static boolean cutOff(Taken taken) {
        try {
            taken.handle.get();
            return false;
        } catch (ExecutionException e) {
            Throwable cause = ExceptionUtils.stripExecutionException(e);
            boolean expected =
                    cause instanceof CancellationException
                            || cause instanceof StateSessionException
                                    && Set.of("CLOSED", "FENCED")
                                            .contains(((StateSessionException) cause).code());
            if (!expected) {
                throw new AssertionError("a snapshot failed", cause);
            }
            return true;
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Discards some snapshots, perhaps the one that was restored from, as Flink does. */
    private static void forget(List<Taken> taken, Random random) throws Exception {
        while (taken.size() > 3) {
            Taken old = taken.remove(random.nextInt(taken.size()));
            KeyedStateHandle handle = old.handle.get();
            assertThat(handle).isNotNull();
            handle.discardState();
        }
    }
}
