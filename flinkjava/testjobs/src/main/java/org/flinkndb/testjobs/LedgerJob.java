package org.flinkndb.testjobs;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.flinkndb.jobs.Arguments;
import org.flinkndb.jobs.Numbers;
import org.flinkndb.jobs.Throttle;

/**
 * A job whose every record checks the state it finds. The source counts 0, 1, 2, …; number i goes to
 * key {@code i % keys}, so the numbers of a key arrive in steps of {@code keys}. {@link Ledger} keeps
 * the history of each key in every kind of state and fails the job with "LEDGER VIOLATION" as soon as
 * a record was lost or counted twice. At the end of the input one line for each key is printed:
 * {@code LEDGER key count sum fired}, to be compared with the same figures computed elsewhere.
 *
 * <p>Parameters: {@code --keys} (1000), {@code --records} (1000000), {@code --rate} records a second
 * (0 = unlimited), {@code --payload} bytes that each key carries along (100).
 */
public final class LedgerJob {
    private LedgerJob() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        int keys = (int) arguments.number("keys", 1_000);
        long records = arguments.number("records", 1_000_000);
        long rate = arguments.number("rate", 0);
        int payload = (int) arguments.number("payload", 100);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(new Configuration());
        Numbers.from(env, "numbers", records, new Throttle<>(rate))
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Long>forMonotonousTimestamps()
                                .withTimestampAssigner((number, previous) -> number))
                .name("timestamps")
                .setParallelism(1)
                .keyBy(number -> number % keys)
                .process(new Ledger(keys, payload))
                .uid("ledger")
                .name("ledger")
                .print()
                .name("result");
        env.execute("ledger");
    }
}
