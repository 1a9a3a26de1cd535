package org.flinkndb;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.IllegalConfigurationException;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.BackendBuildingException;
import org.apache.flink.runtime.state.ConfigurableStateBackend;
import org.apache.flink.runtime.state.DefaultOperatorStateBackendBuilder;
import org.apache.flink.runtime.state.OperatorStateBackend;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.config.NdbSettings;

import java.io.IOException;

/** The state backend: keyed state in a state server, operator state as Flink's own. */
public final class NdbStateBackend extends FlinkStateBackend implements ConfigurableStateBackend {
    private static final long serialVersionUID = 1L;

    /** Our keys, as far as they were set. */
    private final Configuration configuration;

    private final NdbSettings settings;

    /** With the default configuration. */
    public NdbStateBackend() {
        configuration = new Configuration();
        settings = NdbSettings.fromConfig(configuration);
    }

    /** The original's configuration, with what is set in another one on top. */
    private NdbStateBackend(NdbStateBackend original, ReadableConfig config) {
        configuration = NdbOptions.overlay(original.configuration, config);
        settings = NdbSettings.fromConfig(configuration);
        configureTracking(original, config);
    }

    @Override
    public NdbStateBackend configure(ReadableConfig config, ClassLoader classLoader)
            throws IllegalConfigurationException {
        return new NdbStateBackend(this, config);
    }

    @Override
    public <K> AbstractKeyedStateBackend<K> createKeyedStateBackend(
            KeyedStateBackendParameters<K> parameters) throws IOException {
        return new NdbKeyedStateBackendBuilder<>(
                        settings,
                        parameters,
                        tracking(parameters.getMetricGroup()),
                        getCompressionDecorator(parameters.getEnv().getExecutionConfig()))
                .build();
    }

    @Override
    public OperatorStateBackend createOperatorStateBackend(
            OperatorStateBackendParameters parameters) throws BackendBuildingException {
        return new DefaultOperatorStateBackendBuilder(
                        parameters.getEnv().getUserCodeClassLoader().asClassLoader(),
                        parameters.getEnv().getExecutionConfig(),
                        true,
                        parameters.getStateHandles(),
                        parameters.getCancelStreamRegistry())
                .build();
    }

    /** Snapshots do not depend on each other. */
    @Override
    public boolean supportsNoClaimRestoreMode() {
        return true;
    }

    @Override
    public boolean supportsSavepointFormat(SavepointFormatType formatType) {
        return true;
    }
}
