package org.flinkndb.suite;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.InternalPriorityQueue;
import org.apache.flink.runtime.state.InternalPriorityQueueTestBase;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.io.IOException;
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
            AbstractKeyedStateBackend<Long> backend =
                    TestBackends.open(
                            SuiteBackends.create(SERVER),
                            new JobID(),
                            LongSerializer.INSTANCE,
                            KEY_GROUP_RANGE.getNumberOfKeyGroups(),
                            KEY_GROUP_RANGE,
                            Collections.emptyList());
            backends.add(backend);
            return backend.create("queue", TestElementSerializer.INSTANCE);
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    protected boolean testSetSemanticsAgainstDuplicateElements() {
        return true;
    }
}
