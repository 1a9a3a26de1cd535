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
import java.util.Map;

/** Flink's own suite for state with time to live, unmodified. */
@ExtendWith(ParameterizedTestExtension.class)
class NdbTtlStateTest extends TtlStateTestBase {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final String NOT_REWRITTEN =
            "expects a checkpoint to leave expired values out; ours copies nothing, so they are"
                    + " filtered when they are read and left out of canonical savepoints";

    @RegisterExtension
    static final NotApplicable NOT_APPLICABLE =
            new NotApplicable(
                    Map.of(
                            "testMultipleKeysWithSnapshotCleanup",
                            NOT_REWRITTEN,
                            "testMultipleNamespacesWithSnapshotCleanup",
                            NOT_REWRITTEN));

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

    /** The one test that this leaves out looks into the tables of Flink's heap backend. */
    @Override
    protected boolean incrementalCleanupSupported() {
        return false;
    }
}
