package org.flinkndb.testjobs;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.flinkndb.jobs.Arguments;
import org.flinkndb.jobs.Numbers;
import org.flinkndb.jobs.Throttle;

import java.nio.ByteBuffer;
import java.util.SplittableRandom;

/**
 * A job whose state has a chosen size: it writes a value for each key, as fast as it can, and then reads
 * and updates values of random keys. Each value holds its key and how often it was written, which is
 * checked. Lines on standard output say how far a subtask has come, and when, in milliseconds since
 * 1970: {@code OPENED}, {@code FIRST} (the first record after it was opened is done), {@code FILLED}
 * (the first update is done), {@code CLOSED}.
 *
 * <p>Parameters: {@code --keys} (100000), {@code --bytes} of each value (1000), {@code --updates}
 * (100000), {@code --rate} of updates a second (0 = unlimited).
 */
public final class SizedStateJob {
    private SizedStateJob() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        long keys = arguments.number("keys", 100_000);
        int bytes = (int) arguments.number("bytes", 1_000);
        long updates = arguments.number("updates", 100_000);
        long rate = arguments.number("rate", 0);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(new Configuration());
        Throttle<Long> throttle = new Throttle<>(rate, number -> number >= keys);
        Numbers.from(env, "numbers", keys + updates, throttle)
                .keyBy(
                        number ->
                                number < keys
                                        ? number
                                        : new SplittableRandom(number).nextLong(keys))
                .process(new Values(keys, Math.max(bytes, 2 * Long.BYTES)))
                .name("values")
                .sinkTo(new DiscardingSink<>())
                .name("nowhere");
        env.execute("sized state");
    }

    private static final class Values extends KeyedProcessFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;

        private final long keys;
        private final int bytes;
        private transient ValueState<byte[]> value;
        private transient boolean first;
        private transient boolean filled;

        Values(long keys, int bytes) {
            this.keys = keys;
            this.bytes = bytes;
        }

        @Override
        public void open(OpenContext context) {
            value =
                    getRuntimeContext()
                            .getState(
                                    new ValueStateDescriptor<>(
                                            "value",
                                            PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
            first = true;
            say("OPENED");
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out)
                throws Exception {
            long key = context.getCurrentKey();
            long writes = 0;
            if (number >= keys) {
                writes = check(key, value.value());
            }
            byte[] next = new byte[bytes];
            // Half of each value can be compressed, as with real data.
            SplittableRandom random = new SplittableRandom(number);
            for (int i = 2 * Long.BYTES; i + Long.BYTES <= bytes; i += 2 * Long.BYTES) {
                ByteBuffer.wrap(next).putLong(i, random.nextLong());
            }
            ByteBuffer.wrap(next).putLong(key).putLong(writes + 1);
            value.update(next);
            if (first) {
                first = false;
                say("FIRST");
            }
            if (!filled && number >= keys) {
                filled = true;
                say("FILLED");
            }
        }

        /** Fails unless a value is that of the key; returns how often it was written. */
        private static long check(long key, byte[] found) {
            if (found == null) {
                throw new IllegalStateException("VIOLATION: key " + key + " has no value");
            }
            ByteBuffer header = ByteBuffer.wrap(found);
            long foundKey = header.getLong();
            long writes = header.getLong();
            if (foundKey != key || writes < 1) {
                throw new IllegalStateException(
                        "VIOLATION: key " + key + " has the value of " + foundKey + ", " + writes);
            }
            return writes;
        }

        @Override
        public void close() {
            say("CLOSED");
        }

        private void say(String what) {
            System.out.println(
                    what
                            + " "
                            + getRuntimeContext().getTaskInfo().getIndexOfThisSubtask()
                            + " "
                            + System.currentTimeMillis());
        }
    }
}
