package org.flinkndb.suite;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.operators.testutils.MockEnvironment;
import org.apache.flink.runtime.query.KvStateRegistry;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.InternalPriorityQueue;
import org.apache.flink.runtime.state.InternalPriorityQueueTestBase;
import org.apache.flink.runtime.state.KeyedStateBackendParametersImpl;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.flinkndb.testutil.ServerExtension;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** Flink's own suite for priority queues, unmodified, over the queue that holds timers. */
class NdbTimerQueueTest extends InternalPriorityQueueTestBase {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private final List<AbstractKeyedStateBackend<Long>> backends = new ArrayList<>();

    @AfterEach
    void close() throws IOException {
        for (AbstractKeyedStateBackend<Long> backend : backends) {
            backend.close();
            backend.dispose();
        }
    }

    @Override
    protected InternalPriorityQueue<TestElement> newPriorityQueue(int initialCapacity) {
        try {
            MockEnvironment env = MockEnvironment.builder().build();
            AbstractKeyedStateBackend<Long> backend =
                    SuiteBackends.create(SERVER)
                            .createKeyedStateBackend(
                                    new KeyedStateBackendParametersImpl<>(
                                            env,
                                            new JobID(),
                                            "queue",
                                            LongSerializer.INSTANCE,
                                            KEY_GROUP_RANGE.getNumberOfKeyGroups(),
                                            KEY_GROUP_RANGE,
                                            new KvStateRegistry()
                                                    .createTaskRegistry(
                                                            env.getJobID(), env.getJobVertexId()),
                                            TtlTimeProvider.DEFAULT,
                                            new UnregisteredMetricsGroup(),
                                            (name, value) -> {},
                                            Collections.emptyList(),
                                            new CloseableRegistry(),
                                            1.0));
            backends.add(backend);
            return backend.create("queue", TestElementSerializer.INSTANCE);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    protected boolean testSetSemanticsAgainstDuplicateElements() {
        return true;
    }
}
