package org.flinkndb.demo;

import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * The rotations of an aircraft. For each day, a day later when no delay can bring more: {@code
 * R,tail,day,legs}. At the end of the input: {@code A,tail,flights,destinations,most,miles,worst}.
 */
final class Rotations extends KeyedProcessFunction<String, Event, String> {
    private static final long serialVersionUID = 1L;
    private static final long DAY = Duration.ofDays(1).toMillis();

    private transient ListState<String> legs;
    private transient MapState<String, Integer> destinations;
    private transient ValueState<Integer> worstDelay;
    private transient ReducingState<Long> miles;
    private transient AggregatingState<String, Integer> flights;

    @Override
    public void open(OpenContext context) {
        legs = getRuntimeContext().getListState(new ListStateDescriptor<>("legs", Types.STRING));
        destinations =
                getRuntimeContext()
                        .getMapState(
                                new MapStateDescriptor<>("destinations", Types.STRING, Types.INT));
        worstDelay = getRuntimeContext().getState(new ValueStateDescriptor<>("worst", Types.INT));
        miles =
                getRuntimeContext()
                        .getReducingState(
                                new ReducingStateDescriptor<>("miles", Long::sum, Types.LONG));
        flights =
                getRuntimeContext()
                        .getAggregatingState(
                                new AggregatingStateDescriptor<>(
                                        "flights", new Count(), Types.INT));
    }

    @Override
    public void processElement(Event flight, Context context, Collector<String> out)
            throws Exception {
        long day = flight.timestamp / DAY;
        legs.add(day + ":" + flight.timestamp + ":" + flight.origin + "-" + flight.destination);
        Integer times = destinations.get(flight.destination);
        destinations.put(flight.destination, times == null ? 1 : times + 1);
        Integer worst = worstDelay.value();
        worstDelay.update(worst == null ? flight.delay : Math.max(worst, flight.delay));
        miles.add((long) flight.distance);
        flights.add(flight.tail);
        context.timerService().registerEventTimeTimer((day + 2) * DAY);
        context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
    }

    @Override
    public void onTimer(long timestamp, OnTimerContext context, Collector<String> out)
            throws Exception {
        String tail = context.getCurrentKey();
        if (timestamp == Long.MAX_VALUE) {
            int distinct = 0;
            int most = 0;
            for (Integer times : destinations.values()) {
                distinct++;
                most = Math.max(most, times);
            }
            out.collect(
                    "A,"
                            + tail
                            + ","
                            + flights.get()
                            + ","
                            + distinct
                            + ","
                            + most
                            + ","
                            + miles.get()
                            + ","
                            + worstDelay.value());
            return;
        }
        long day = timestamp / DAY - 2;
        List<String> ofDay = new ArrayList<>();
        List<String> others = new ArrayList<>();
        for (String leg : legs.get()) {
            (leg.startsWith(day + ":") ? ofDay : others).add(leg);
        }
        legs.update(others);
        Collections.sort(ofDay);
        out.collect("R," + tail + "," + day + "," + String.join(" ", ofDay));
    }

    /** Counts. */
    private static final class Count implements AggregateFunction<String, Integer, Integer> {
        private static final long serialVersionUID = 1L;

        @Override
        public Integer createAccumulator() {
            return 0;
        }

        @Override
        public Integer add(String tail, Integer count) {
            return count + 1;
        }

        @Override
        public Integer getResult(Integer count) {
            return count;
        }

        @Override
        public Integer merge(Integer left, Integer right) {
            return left + right;
        }
    }
}
