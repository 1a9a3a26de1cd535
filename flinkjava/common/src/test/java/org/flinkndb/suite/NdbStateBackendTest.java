package org.flinkndb.suite;

import org.apache.flink.runtime.state.CheckpointStorage;
import org.apache.flink.runtime.state.ConfigurableStateBackend;
import org.apache.flink.runtime.state.StateBackendTestBase;
import org.apache.flink.runtime.state.storage.JobManagerCheckpointStorage;
import org.apache.flink.testutils.junit.extensions.parameterized.Parameter;
import org.apache.flink.testutils.junit.extensions.parameterized.ParameterizedTestExtension;
import org.apache.flink.testutils.junit.extensions.parameterized.Parameters;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.List;

/** Flink's own suite for state backends, unmodified. */
@ExtendWith(ParameterizedTestExtension.class)
class NdbStateBackendTest extends StateBackendTestBase<NdbStateBackend> {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @Parameter NdbOptions.Recovery recovery;

    @Parameters(name = "{0}")
    static List<Object[]> parameters() {
        return List.of(
                new Object[] {NdbOptions.Recovery.LAZY}, new Object[] {NdbOptions.Recovery.EAGER});
    }

    @Override
    protected ConfigurableStateBackend getStateBackend() throws Exception {
        return SuiteBackends.create(SERVER, recovery);
    }

    @Override
    protected CheckpointStorage getCheckpointStorage() {
        return new JobManagerCheckpointStorage();
    }

    @Override
    protected boolean isSerializerPresenceRequiredOnRestore() {
        return false;
    }

    @Override
    protected boolean supportsAsynchronousSnapshots() {
        return true;
    }

    /** The three tests that this leaves out stop inside Flink's checkpoint stream, which we do not write. */
    @Override
    protected boolean snapshotUsesStreamFactory() {
        return false;
    }
}
