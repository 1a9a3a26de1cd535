package org.flinkndb.state;

import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.internal.InternalReducingState;

import java.util.Collection;

/** Reducing state. */
final class NdbReducingState<K, N, V> extends ValueBasedState<K, N, V>
        implements InternalReducingState<K, N, V> {
    private ReduceFunction<V> function;

    NdbReducingState(
            StateContext<K> context,
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> metaInfo,
            boolean knownEmpty) {
        super(context, descriptor, metaInfo, knownEmpty);
        function = function(descriptor);
    }

    @SuppressWarnings("unchecked")
    private static <V> ReduceFunction<V> function(StateDescriptor<?, V> descriptor) {
        return ((ReducingStateDescriptor<V>) descriptor).getReduceFunction();
    }

    @Override
    public void reconfigure(
            StateDescriptor<?, V> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, V> newInfo) {
        super.reconfigure(descriptor, newInfo);
        function = function(descriptor);
    }

    @Override
    public V get() throws Exception {
        return getInternal();
    }

    @Override
    public void add(V value) throws Exception {
        if (value == null) {
            clear();
            return;
        }
        V old = load();
        store(old == null ? value : function.reduce(old, value));
    }

    @Override
    public V getInternal() throws Exception {
        return load();
    }

    @Override
    public void updateInternal(V value) throws Exception {
        store(value);
    }

    @Override
    public void mergeNamespaces(N target, Collection<N> sources) throws Exception {
        if (sources == null) {
            return;
        }
        V merged = null;
        for (N source : sources) {
            V value = load(source);
            if (value != null) {
                store(source, null);
                merged = merged == null ? value : function.reduce(merged, value);
            }
        }
        if (merged != null) {
            V old = load(target);
            store(target, old == null ? merged : function.reduce(old, merged));
        }
    }
}
