package org.flinkndb.demo;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.java.tuple.Tuple3;

/** Number of flights, sum and maximum of their delays. */
final class DelayStatistics
        implements AggregateFunction<
                Event, Tuple3<Integer, Integer, Integer>, Tuple3<Integer, Integer, Integer>> {
    private static final long serialVersionUID = 1L;

    @Override
    public Tuple3<Integer, Integer, Integer> createAccumulator() {
        return Tuple3.of(0, 0, Integer.MIN_VALUE);
    }

    @Override
    public Tuple3<Integer, Integer, Integer> add(
            Event flight, Tuple3<Integer, Integer, Integer> sum) {
        return Tuple3.of(sum.f0 + 1, sum.f1 + flight.delay, Math.max(sum.f2, flight.delay));
    }

    @Override
    public Tuple3<Integer, Integer, Integer> getResult(Tuple3<Integer, Integer, Integer> sum) {
        return sum;
    }

    @Override
    public Tuple3<Integer, Integer, Integer> merge(
            Tuple3<Integer, Integer, Integer> left, Tuple3<Integer, Integer, Integer> right) {
        return Tuple3.of(left.f0 + right.f0, left.f1 + right.f1, Math.max(left.f2, right.f2));
    }
}
