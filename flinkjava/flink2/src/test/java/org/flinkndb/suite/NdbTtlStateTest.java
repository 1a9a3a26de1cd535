package org.flinkndb.suite;

import org.apache.flink.runtime.state.CheckpointStorage;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.storage.JobManagerCheckpointStorage;
import org.apache.flink.runtime.state.ttl.StateBackendTestContext;
import org.apache.flink.runtime.state.ttl.TtlStateTestBase;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.apache.flink.testutils.junit.extensions.parameterized.ParameterizedTestExtension;

import org.flinkndb.testutil.ServerExtension;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.io.IOException;
import java.io.UncheckedIOException;

/** Flink's own suite for state with time to live, unmodified. */
@ExtendWith(ParameterizedTestExtension.class)
class NdbTtlStateTest extends TtlStateTestBase {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @Override
    protected StateBackendTestContext createStateBackendTestContext(TtlTimeProvider time) {
        return new StateBackendTestContext(time) {
            @Override
            protected StateBackend createStateBackend() {
                try {
                    return SuiteBackends.create(SERVER);
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            }

            @Override
            protected CheckpointStorage createCheckpointStorage() {
                return new JobManagerCheckpointStorage();
            }
        };
    }

    @Override
    protected boolean incrementalCleanupSupported() {
        return true;
    }
}
