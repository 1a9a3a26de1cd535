package org.flinkndb.suite;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;

import java.io.IOException;
import java.util.Collection;
import java.util.List;

/** Makes backends for the suites the way Flink does: through the factory, from a configuration. */
final class SuiteBackends {
    private static final int KEY_GROUPS = 16;

    private SuiteBackends() {}

    static NdbStateBackend create(ServerExtension server) throws IOException {
        return create(server, NdbOptions.Recovery.LAZY);
    }

    static NdbStateBackend create(ServerExtension server, NdbOptions.Recovery recovery)
            throws IOException {
        return create(server, recovery, NdbOptions.CACHE_SIZE.defaultValue());
    }

    static NdbStateBackend create(
            ServerExtension server, NdbOptions.Recovery recovery, MemorySize cache)
            throws IOException {
        Configuration configuration = new Configuration();
        configuration.set(NdbOptions.RECOVERY, recovery);
        if (cache != null) {
            configuration.set(NdbOptions.CACHE_SIZE, cache);
        }
        configuration.setString("state.backend.ndb.address", server.address());
        return new NdbStateBackendFactory()
                .createFromConfig(configuration, SuiteBackends.class.getClassLoader());
    }

    /** Opens an empty one of Long keys whose cache is small, with a clock for state with time to live. */
    static AbstractKeyedStateBackend<Long> openEmpty(
            ServerExtension server, MemorySize cache, TtlTimeProvider clock) throws Exception {
        return open(create(server, NdbOptions.Recovery.LAZY, cache), new JobID(), List.of(), clock);
    }

    /** Opens a backend for Long keys and all key groups. */
    static AbstractKeyedStateBackend<Long> open(
            NdbStateBackend factory, JobID job, Collection<KeyedStateHandle> handles)
            throws Exception {
        return open(factory, job, handles, TtlTimeProvider.DEFAULT);
    }

    /** The same, with a clock for state with time to live. */
    static AbstractKeyedStateBackend<Long> open(
            NdbStateBackend factory,
            JobID job,
            Collection<KeyedStateHandle> handles,
            TtlTimeProvider clock)
            throws Exception {
        return TestBackends.open(
                factory,
                job,
                LongSerializer.INSTANCE,
                KEY_GROUPS,
                KeyGroupRange.of(0, KEY_GROUPS - 1),
                handles,
                clock);
    }

    /** Registers a state without namespaces. */
    static <S extends State> S state(
            AbstractKeyedStateBackend<?> backend, StateDescriptor<S, ?> descriptor)
            throws Exception {
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }
}
