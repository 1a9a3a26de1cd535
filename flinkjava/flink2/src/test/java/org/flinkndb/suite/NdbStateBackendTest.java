package org.flinkndb.suite;

import org.apache.flink.runtime.state.CheckpointStorage;
import org.apache.flink.runtime.state.ConfigurableStateBackend;
import org.apache.flink.runtime.state.StateBackendTestBase;
import org.apache.flink.runtime.state.storage.JobManagerCheckpointStorage;
import org.apache.flink.testutils.junit.extensions.parameterized.ParameterizedTestExtension;
import org.apache.flink.testutils.junit.extensions.parameterized.Parameters;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.testutil.ServerExtension;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.Collections;
import java.util.List;

/** Flink's own suite for state backends, unmodified. */
@ExtendWith(ParameterizedTestExtension.class)
class NdbStateBackendTest extends StateBackendTestBase<NdbStateBackend> {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @Parameters(name = "lazy")
    static List<Object[]> parameters() {
        return Collections.singletonList(new Object[0]);
    }

    @Override
    protected ConfigurableStateBackend getStateBackend() throws Exception {
        return SuiteBackends.create(SERVER);
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
