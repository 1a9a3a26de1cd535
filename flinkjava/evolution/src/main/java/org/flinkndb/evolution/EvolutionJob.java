package org.flinkndb.evolution;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.flinkndb.jobs.Arguments;
import org.flinkndb.jobs.Numbers;
import org.flinkndb.jobs.Throttle;

/**
 * A job that is released twice with different classes and schemas of its state: {@link Account} and
 * {@link Receipt} have a first and a second version, each in a jar of its own. The source counts 0, 1,
 * 2, …; number i goes to key {@code i % keys}. Each record checks the state that it finds; at the end
 * of the input each key prints {@code EVOLVED key count since}, where {@code since} is the first number
 * that the second release saw.
 *
 * <p>Parameters: {@code --keys} (100), {@code --records} (100000), {@code --rate} records a second (0 =
 * unlimited).
 */
public final class EvolutionJob {
    private EvolutionJob() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        long keys = arguments.number("keys", 100);
        long records = arguments.number("records", 100_000);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(new Configuration());
        long rate = arguments.number("rate", 0);
        Numbers.from(env, "numbers", records, new Throttle<>(rate))
                .keyBy(number -> number % keys)
                .process(new Accounts(keys, records))
                .uid("accounts")
                .name("accounts")
                .print()
                .name("result");
        env.execute("evolution");
    }
}
