package org.flinkndb.jobs;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The input of jobs that make their records from numbers. */
public final class Numbers {
    private Numbers() {}

    /**
     * The numbers from 0 on, in order, from one source subtask.
     *
     * @param name of the source, and its uid
     * @param count how many there are, at least 1
     */
    public static SingleOutputStreamOperator<Long> from(
            StreamExecutionEnvironment env, String name, long count, Throttle<Long> throttle) {
        return env.fromSource(
                        new NumberSequenceSource(0, count - 1),
                        WatermarkStrategy.noWatermarks(),
                        name)
                .uid(name)
                .setParallelism(1)
                .map(throttle)
                .returns(Types.LONG)
                .name("throttle")
                .setParallelism(1);
    }
}
