package org.apache.flink.test.state;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.CheckpointableKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.test.state.BackendSwitchSpecs.BackendSwitchSpec;
import org.apache.flink.testutils.junit.extensions.parameterized.ParameterizedTestExtension;
import org.apache.flink.testutils.junit.extensions.parameterized.Parameters;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.Collection;
import java.util.List;

/**
 * Flink's own test of moving state between backends, unmodified, with ours on either side. Its base
 * class is visible in this package only.
 */
@ExtendWith(ParameterizedTestExtension.class)
class NdbSavepointStateBackendSwitchTest extends SavepointStateBackendSwitchTestBase {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    NdbSavepointStateBackendSwitchTest(BackendSwitchSpec from, BackendSwitchSpec to) {
        super(from, to);
    }

    @Parameters(name = "{0} to {1}")
    static Collection<Object[]> backends() {
        NdbSpec ndb = new NdbSpec();
        return List.of(
                new Object[] {ndb, ndb},
                new Object[] {ndb, BackendSwitchSpecs.ROCKS},
                new Object[] {ndb, BackendSwitchSpecs.ROCKS_HEAP_TIMERS},
                new Object[] {ndb, BackendSwitchSpecs.HEAP},
                new Object[] {BackendSwitchSpecs.ROCKS, ndb},
                new Object[] {BackendSwitchSpecs.ROCKS_HEAP_TIMERS, ndb},
                new Object[] {BackendSwitchSpecs.HEAP, ndb});
    }

    /** Makes our backend. */
    private static final class NdbSpec implements BackendSwitchSpec {
        @Override
        public CheckpointableKeyedStateBackend<String> createBackend(
                KeyGroupRange range, int keyGroups, Collection<KeyedStateHandle> handles)
                throws Exception {
            Configuration configuration = new Configuration();
            configuration.setString("state.backend.ndb.address", SERVER.address());
            return TestBackends.open(
                    new NdbStateBackendFactory()
                            .createFromConfig(configuration, getClass().getClassLoader()),
                    new JobID(),
                    StringSerializer.INSTANCE,
                    keyGroups,
                    range,
                    handles);
        }

        @Override
        public void close() {}

        @Override
        public String toString() {
            return "ndb";
        }
    }
}
