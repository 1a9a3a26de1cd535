package org.flinkndb.suite;

import org.apache.flink.runtime.state.CheckpointStorage;
import org.apache.flink.runtime.state.StateBackendMigrationTestBase;
import org.apache.flink.runtime.state.storage.JobManagerCheckpointStorage;
import org.apache.flink.testutils.junit.extensions.parameterized.ParameterizedTestExtension;
import org.apache.flink.testutils.junit.extensions.parameterized.Parameters;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.testutil.ServerExtension;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.Collections;
import java.util.List;

/** Flink's own suite for serializer migration, unmodified. */
@ExtendWith(ParameterizedTestExtension.class)
class NdbStateBackendMigrationTest extends StateBackendMigrationTestBase<NdbStateBackend> {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @Parameters(name = "lazy")
    static List<Object[]> parameters() {
        return Collections.singletonList(new Object[0]);
    }

    @Override
    protected NdbStateBackend getStateBackend() throws Exception {
        return SuiteBackends.create(SERVER);
    }

    @Override
    protected CheckpointStorage getCheckpointStorage() {
        return new JobManagerCheckpointStorage();
    }
}
