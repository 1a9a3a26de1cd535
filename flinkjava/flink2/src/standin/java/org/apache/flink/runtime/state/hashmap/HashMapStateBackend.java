package org.apache.flink.runtime.state.hashmap;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.AbstractStateBackend;
import org.apache.flink.runtime.state.BackendBuildingException;
import org.apache.flink.runtime.state.ConfigurableStateBackend;
import org.apache.flink.runtime.state.OperatorStateBackend;
import org.flinkndb.NdbStateBackend;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.standin.StandInServer;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Stands in for the backend that Flink's operator tests use without a choice, and hands everything to
 * ours: on a class path where it comes before Flink's own, those tests run unmodified on this backend. Some
 * have subclasses of it.
 */
public class HashMapStateBackend extends AbstractStateBackend implements ConfigurableStateBackend {
    private static final long serialVersionUID = 1L;

    /** So small that state is written and read again, or null: state of small tests never leaves a large cache. */
    private static final String CACHE = System.getProperty("flinkndb.cache");

    private static final AtomicLong KEYED_BACKENDS = new AtomicLong();

    private final NdbStateBackend backend;

    public HashMapStateBackend() {
        Configuration configuration = new Configuration();
        configuration.set(NdbOptions.ADDRESS, List.of(StandInServer.server().address()));
        if (CACHE != null) {
            configuration.set(NdbOptions.CACHE_SIZE, MemorySize.parse(CACHE));
        }
        backend = new NdbStateBackend().configure(configuration, getClass().getClassLoader());
    }

    private HashMapStateBackend(NdbStateBackend backend) {
        this.backend = backend;
    }

    /** How many keyed backends were made in this JVM, which all are ours. */
    public static long keyedBackends() {
        return KEYED_BACKENDS.get();
    }

    @Override
    public HashMapStateBackend configure(ReadableConfig config, ClassLoader classLoader) {
        return new HashMapStateBackend(backend.configure(config, classLoader));
    }

    @Override
    public <K> AbstractKeyedStateBackend<K> createKeyedStateBackend(
            KeyedStateBackendParameters<K> parameters) throws IOException {
        KEYED_BACKENDS.incrementAndGet();
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
