package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.internal.InternalKvState;

import java.io.IOException;

/** What the keyed state backend needs of a state object beyond Flink's own interface. */
public interface NdbState<K, N, V> extends InternalKvState<K, N, V> {
    /** Index of the state on the wire. */
    int wireIndex();

    RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo();

    /** Takes over serializers, default value and functions of a repeated registration. */
    void reconfigure(
            StateDescriptor<?, V> descriptor, RegisteredKeyValueStateBackendMetaInfo<N, V> newInfo);

    /** Begins to read all rows of the state into its cache, after a restore. */
    void loadEagerly();

    /**
     * Rewrites every value from the serializer that wrote it to the current one, after a
     * registration that is compatible only after migration.
     */
    void migrate(RegisteredKeyValueStateBackendMetaInfo<N, V> writtenWith)
            throws IOException, InterruptedException;
}
