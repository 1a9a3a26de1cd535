package org.flinkndb.state;

import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.util.FlinkRuntimeException;

import java.util.List;
import java.util.Map;

/** Makes state objects. */
public final class NdbStates {
    private NdbStates() {}

    /**
     * Makes the object of a state.
     *
     * @param knownEmpty whether the store is known to hold no row of it
     */
    @SuppressWarnings({"unchecked", "rawtypes"})
    public static <K, N, V> NdbState<K, N, V> create(
            StateContext<K> context,
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo,
            boolean knownEmpty) {
        switch (descriptor.getType()) {
            case VALUE:
                return new NdbValueState<>(context, descriptor, metaInfo, knownEmpty);
            case LIST:
                return new NdbListState(
                        context,
                        (StateDescriptor<?, List<Object>>) descriptor,
                        (RegisteredKeyValueStateBackendMetaInfo<N, List<Object>>) metaInfo,
                        knownEmpty);
            case MAP:
                return new NdbMapState(
                        context,
                        (StateDescriptor<?, Map<Object, Object>>) descriptor,
                        (RegisteredKeyValueStateBackendMetaInfo<N, Map<Object, Object>>) metaInfo,
                        knownEmpty);
            case REDUCING:
                return new NdbReducingState<>(context, descriptor, metaInfo, knownEmpty);
            case AGGREGATING:
                return new NdbAggregatingState<>(context, descriptor, metaInfo, knownEmpty);
            default:
                throw new FlinkRuntimeException(
                        "State "
                                + descriptor.getName()
                                + " is of type "
                                + descriptor.getType()
                                + "; supported are VALUE, LIST, MAP, REDUCING and AGGREGATING.");
        }
    }
}
