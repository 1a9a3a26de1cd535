package org.flinkndb.demo;

import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.file.src.FileSource;
import org.apache.flink.connector.file.src.reader.TextLineInputFormat;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.util.OutputTag;
import org.flinkndb.jobs.Arguments;
import org.flinkndb.jobs.Throttle;

import java.time.Duration;

/**
 * The demo: a year of flights from New York, in the order in which they really departed, so that delays
 * make them late. Delay statistics in sliding windows, the rotations of each aircraft, and the weather
 * joined by the hour; every kind of keyed state and timers are used.
 *
 * <p>Parameters: {@code --input FILE}, {@code --output FOLDER}, {@code --rate} events a second.
 */
public final class FlightsJob {
    static final Duration OUT_OF_ORDER = Duration.ofMinutes(30);
    static final Duration WINDOW = Duration.ofHours(6);
    static final Duration SLIDE = Duration.ofHours(2);

    private FlightsJob() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        DataStream<Event> events =
                env.fromSource(
                                FileSource.forRecordStreamFormat(
                                                new TextLineInputFormat(),
                                                new Path(arguments.text("input")))
                                        .build(),
                                WatermarkStrategy.noWatermarks(),
                                "lines")
                        .setParallelism(1)
                        .map(new Throttle<String>(arguments.number("rate", 5000)))
                        .returns(Types.STRING)
                        .setParallelism(1)
                        .name("throttle")
                        .map(Event::parse)
                        .setParallelism(1)
                        .name("parse")
                        .flatMap(new Clock())
                        .returns(Event.class)
                        .setParallelism(1)
                        .uid("clock")
                        .name("clock")
                        .assignTimestampsAndWatermarks(
                                WatermarkStrategy.<Event>forGenerator(context -> new EachEvent())
                                        .withTimestampAssigner(
                                                (event, previous) -> event.timestamp))
                        .setParallelism(1)
                        .name("timestamps")
                        .filter(event -> !event.isClock())
                        .setParallelism(1)
                        .name("without clock");
        DataStream<Event> flights =
                events.filter(event -> event.flight).setParallelism(1).name("flights");

        OutputTag<Event> late = new OutputTag<>("late") {};
        SingleOutputStreamOperator<String> windows =
                flights.keyBy(event -> event.carrier + "," + event.origin)
                        .window(SlidingEventTimeWindows.of(WINDOW, SLIDE))
                        .sideOutputLateData(late)
                        .aggregate(new DelayStatistics(), new WindowLine())
                        .name("delay windows");
        DataStream<String> lateFlights =
                windows.getSideOutput(late)
                        .map(
                                e ->
                                        "L,"
                                                + e.carrier
                                                + ","
                                                + e.origin
                                                + ","
                                                + e.tail
                                                + ","
                                                + e.timestamp)
                        .name("late flights");
        DataStream<String> rotations =
                flights.filter(event -> !event.tail.isEmpty())
                        .setParallelism(1)
                        .name("aircraft known")
                        .keyBy(event -> event.tail)
                        .process(new Rotations())
                        .name("rotations");
        DataStream<String> weather =
                events.keyBy(event -> event.origin).process(new WeatherJoin()).name("weather join");
        windows.union(lateFlights, rotations, weather)
                .sinkTo(
                        FileSink.forRowFormat(
                                        new Path(arguments.text("output")),
                                        new SimpleStringEncoder<String>())
                                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                                .build())
                .name("results");
        env.execute("flights");
    }

    /** Advances the watermark with each event, so that what is late does not depend on timing. */
    private static final class EachEvent implements WatermarkGenerator<Event> {
        private long latest = Long.MIN_VALUE + OUT_OF_ORDER.toMillis() + 1;

        @Override
        public void onEvent(Event event, long timestamp, WatermarkOutput output) {
            if (timestamp > latest) {
                latest = timestamp;
                output.emitWatermark(new Watermark(latest - OUT_OF_ORDER.toMillis() - 1));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }
}
