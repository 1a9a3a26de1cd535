package org.flinkndb.suite;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;

import java.io.IOException;

/** Makes backends for the suites the way Flink does: through the factory, from a configuration. */
final class SuiteBackends {
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
}
