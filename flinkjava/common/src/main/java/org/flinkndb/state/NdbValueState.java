package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.internal.InternalValueState;
import org.flinkndb.client.StateAccess;

import java.io.IOException;

/** Value state. */
final class NdbValueState<K, N, V> extends ValueBasedState<K, N, V>
        implements InternalValueState<K, N, V> {
    NdbValueState(
            StateContext<K> context,
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo,
            boolean knownEmpty) {
        super(context, descriptor, metaInfo, knownEmpty);
    }

    @Override
    public V value() throws IOException {
        V value = StateAccess.interruptible(this::load);
        return value == null ? defaultValue() : value;
    }

    @Override
    public void update(V value) throws IOException {
        StateAccess.interruptible(
                () -> {
                    store(value);
                    return null;
                });
    }
}
