package org.apache.flink.runtime.state.hashmap;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.AbstractStateBackend;
import org.apache.flink.runtime.state.BackendBuildingException;
import org.apache.flink.runtime.state.ConfigurableStateBackend;
import org.apache.flink.runtime.state.OperatorStateBackend;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.standin.StandInServer;

import java.io.IOException;

/**
 * Stands in for the backend that Flink's operator tests use without a choice, and hands everything to
 * ours: on a class path where it comes before Flink's own, those tests run unmodified on this backend.
 */
public final class HashMapStateBackend extends AbstractStateBackend
        implements ConfigurableStateBackend {
    private static final long serialVersionUID = 1L;

    private final NdbStateBackend backend;

    public HashMapStateBackend() {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.ndb.address", StandInServer.address());
        backend = new NdbStateBackend().configure(configuration, getClass().getClassLoader());
    }

    private HashMapStateBackend(NdbStateBackend backend) {
        this.backend = backend;
    }

    @Override
    public HashMapStateBackend configure(ReadableConfig config, ClassLoader classLoader) {
        return new HashMapStateBackend(backend.configure(config, classLoader));
    }

    @Override
    public <K> AbstractKeyedStateBackend<K> createKeyedStateBackend(
            KeyedStateBackendParameters<K> parameters) throws IOException {
        return backend.createKeyedStateBackend(parameters);
    }

    @Override
    public OperatorStateBackend createOperatorStateBackend(
            OperatorStateBackendParameters parameters) throws BackendBuildingException {
        return backend.createOperatorStateBackend(parameters);
    }

    @Override
    public boolean supportsNoClaimRestoreMode() {
        return backend.supportsNoClaimRestoreMode();
    }

    @Override
    public boolean supportsSavepointFormat(SavepointFormatType formatType) {
        return backend.supportsSavepointFormat(formatType);
    }
}
