package org.flinkndb.demo;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

import java.time.Duration;

/**
 * Joins the flights of each hour at an airport with its wind, a day later when no delay can bring
 * more: {@code J,origin,hour,flights,delays,wind}.
 */
final class WeatherJoin extends KeyedProcessFunction<String, Event, String> {
    private static final long serialVersionUID = 1L;
    private static final long HOUR = Duration.ofHours(1).toMillis();
    private static final long WAIT = Duration.ofHours(25).toMillis();

    private transient MapState<Long, String> wind;
    private transient MapState<Long, Long> flights;
    private transient MapState<Long, Long> delays;

    @Override
    public void open(OpenContext context) {
        wind =
                getRuntimeContext()
                        .getMapState(new MapStateDescriptor<>("wind", Types.LONG, Types.STRING));
        flights =
                getRuntimeContext()
                        .getMapState(new MapStateDescriptor<>("flights", Types.LONG, Types.LONG));
        delays =
                getRuntimeContext()
                        .getMapState(new MapStateDescriptor<>("delays", Types.LONG, Types.LONG));
    }

    @Override
    public void processElement(Event event, Context context, Collector<String> out)
            throws Exception {
        long hour = event.timestamp / HOUR * HOUR;
        if (event.flight) {
            add(flights, hour, 1);
            add(delays, hour, event.delay);
        } else {
            wind.put(hour, event.wind);
        }
        context.timerService().registerEventTimeTimer(hour + WAIT);
    }

    private static void add(MapState<Long, Long> sums, long hour, long more) throws Exception {
        Long sum = sums.get(hour);
        sums.put(hour, sum == null ? more : sum + more);
    }

    @Override
    public void onTimer(long timestamp, OnTimerContext context, Collector<String> out)
            throws Exception {
        long hour = timestamp - WAIT;
        Long count = flights.get(hour);
        if (count != null) {
            out.collect(
                    "J,"
                            + context.getCurrentKey()
                            + ","
                            + hour
                            + ","
                            + count
                            + ","
                            + delays.get(hour)
                            + ","
                            + (wind.contains(hour) ? wind.get(hour) : "unknown"));
        }
        flights.remove(hour);
        delays.remove(hour);
        wind.remove(hour);
    }
}
