package org.flinkndb.state;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.internal.InternalAggregatingState;

import java.util.Collection;

/** Aggregating state: keeps the accumulator. */
final class NdbAggregatingState<K, N, I, A, O> extends ValueBasedState<K, N, A>
        implements InternalAggregatingState<K, N, I, A, O> {
    private AggregateFunction<I, A, O> function;

    NdbAggregatingState(
            StateContext<K> context,
            StateDescriptor<?, A> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, A> metaInfo,
            boolean knownEmpty) {
        super(context, descriptor, metaInfo, knownEmpty);
        function = function(descriptor);
    }

    @SuppressWarnings("unchecked")
    private static <I, A, O> AggregateFunction<I, A, O> function(StateDescriptor<?, A> descriptor) {
        return ((AggregatingStateDescriptor<I, A, O>) descriptor).getAggregateFunction();
    }

    @Override
    public void reconfigure(
            StateDescriptor<?, A> descriptor,
            RegisteredKeyValueStateBackendMetaInfo<N, A> newInfo) {
        super.reconfigure(descriptor, newInfo);
        function = function(descriptor);
    }

    @Override
    public O get() throws Exception {
        A accumulator = load();
        return accumulator == null ? null : function.getResult(accumulator);
    }

    @Override
    public void add(I value) throws Exception {
        if (value == null) {
            clear();
            return;
        }
        A accumulator = load();
        store(
                function.add(
                        value, accumulator == null ? function.createAccumulator() : accumulator));
    }

    @Override
    public A getInternal() throws Exception {
        return load();
    }

    @Override
    public void updateInternal(A accumulator) throws Exception {
        store(accumulator);
    }

    @Override
    public void mergeNamespaces(N target, Collection<N> sources) throws Exception {
        if (sources == null) {
            return;
        }
        A merged = null;
        for (N source : sources) {
            A accumulator = load(source);
            if (accumulator != null) {
                store(source, null);
                merged = merged == null ? accumulator : function.merge(merged, accumulator);
            }
        }
        if (merged != null) {
            A old = load(target);
            store(target, old == null ? merged : function.merge(old, merged));
        }
    }
}
