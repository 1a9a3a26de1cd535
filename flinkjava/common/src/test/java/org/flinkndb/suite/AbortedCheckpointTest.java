package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.List;

/**
 * Tells of aborted checkpoints whose state Flink may still restore: when the high-availability store does not
 * say whether it took a checkpoint, the JobManager keeps its state and yet calls it aborted. The next JobManager
 * finds out.
 */
class AbortedCheckpointTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private final JobID job = new JobID();

    @Test
    void canBeRestored() throws Exception {
        KeyedStateHandle handle;
        AbstractKeyedStateBackend<Long> backend = open(List.of());
        try {
            ValueState<Long> state = state(backend);
            backend.setCurrentKey(1L);
            state.update(10L);
            handle = TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
            backend.notifyCheckpointAborted(1);
            backend.numKeyValueStateEntries(); // answered when the server has heard of it
        } finally {
            close(backend);
        }
        AbstractKeyedStateBackend<Long> restored = open(List.of(handle));
        try {
            restored.setCurrentKey(1L);
            assertThat(state(restored).value()).isEqualTo(10L);
        } finally {
            close(restored);
        }
    }

    private AbstractKeyedStateBackend<Long> open(List<KeyedStateHandle> handles) throws Exception {
        return SuiteBackends.open(SuiteBackends.create(SERVER), job, handles);
    }

    private static ValueState<Long> state(AbstractKeyedStateBackend<Long> backend)
            throws Exception {
        return SuiteBackends.state(backend, new ValueStateDescriptor<>("value", Types.LONG));
    }

    private static void close(AbstractKeyedStateBackend<Long> backend) throws Exception {
        backend.close();
        backend.dispose();
    }
}
