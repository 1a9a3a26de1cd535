package org.apache.flink.test.state;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.metrics.groups.UnregisteredMetricsGroup;
import org.apache.flink.runtime.operators.testutils.MockEnvironment;
import org.apache.flink.runtime.query.KvStateRegistry;
import org.apache.flink.runtime.state.CheckpointableKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateBackendParametersImpl;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.apache.flink.test.state.BackendSwitchSpecs.BackendSwitchSpec;
import org.apache.flink.testutils.junit.extensions.parameterized.ParameterizedTestExtension;
import org.apache.flink.testutils.junit.extensions.parameterized.Parameters;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.testutil.ServerExtension;
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
            MockEnvironment env = MockEnvironment.builder().build();
            JobID job = new JobID();
            return new NdbStateBackendFactory()
                    .createFromConfig(configuration, getClass().getClassLoader())
                    .createKeyedStateBackend(
                            new KeyedStateBackendParametersImpl<>(
                                    env,
                                    job,
                                    "operator",
                                    StringSerializer.INSTANCE,
                                    keyGroups,
                                    range,
                                    new KvStateRegistry()
                                            .createTaskRegistry(job, env.getJobVertexId()),
                                    TtlTimeProvider.DEFAULT,
                                    new UnregisteredMetricsGroup(),
                                    (name, value) -> {},
                                    handles,
                                    new CloseableRegistry(),
                                    1.0));
        }

        @Override
        public void close() {}

        @Override
        public String toString() {
            return "ndb";
        }
    }
}
