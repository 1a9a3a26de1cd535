package org.flinkndb.testjobs;

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
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

import java.util.Arrays;
import java.util.Map;

/**
 * Keeps what happened to a key in every kind of keyed state and checks, at each record and timer,
 * that the states agree with each other and with the number that came.
 */
final class Ledger extends KeyedProcessFunction<Long, Long, String> {
    private static final long serialVersionUID = 1L;

    /** The list is checked and emptied at this length. */
    private static final int LIST_LIMIT = 32;

    /** Numbers of a key are spread over so many map entries. */
    private static final int BUCKETS = 8;

    private final long keys;
    private final int payload;

    private transient ValueState<Long> last;
    private transient ValueState<Long> lastFired;
    private transient ValueState<byte[]> ballast;
    private transient ListState<Long> recent;
    private transient MapState<Integer, Long> buckets;
    private transient ReducingState<Long> sum;
    private transient AggregatingState<Long, Long> count;

    Ledger(long keys, int payload) {
        this.keys = keys;
        this.payload = payload;
    }

    @Override
    public void open(OpenContext context) {
        last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.LONG));
        lastFired =
                getRuntimeContext().getState(new ValueStateDescriptor<>("lastFired", Types.LONG));
        ballast =
                getRuntimeContext()
                        .getState(
                                new ValueStateDescriptor<>(
                                        "ballast",
                                        PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
        recent = getRuntimeContext().getListState(new ListStateDescriptor<>("recent", Types.LONG));
        buckets =
                getRuntimeContext()
                        .getMapState(new MapStateDescriptor<>("buckets", Types.INT, Types.LONG));
        sum =
                getRuntimeContext()
                        .getReducingState(
                                new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
        count =
                getRuntimeContext()
                        .getAggregatingState(
                                new AggregatingStateDescriptor<>(
                                        "count", new CountAggregate(), Types.LONG));
    }

    @Override
    public void processElement(Long number, Context context, Collector<String> out)
            throws Exception {
        Long previous = last.value();
        long expected = previous == null ? context.getCurrentKey() : previous + keys;
        check(number == expected, "number", expected, number, context.getCurrentKey());
        last.update(number);
        recent.add(number);
        sum.add(number);
        count.add(number);
        long seen = number / keys + 1;
        check(count.get() == seen, "count", seen, count.get(), context.getCurrentKey());
        addToBucket((int) (seen % BUCKETS));
        if (seen % LIST_LIMIT == 0) {
            checkHistory(number, seen, context.getCurrentKey());
            recent.clear();
        }
        checkBallast(number, context.getCurrentKey());
        context.timerService().registerEventTimeTimer(number + 5 * keys);
        if (previous == null) {
            context.timerService().registerEventTimeTimer(Long.MAX_VALUE);
        }
    }

    @Override
    public void onTimer(long timestamp, OnTimerContext context, Collector<String> out)
            throws Exception {
        Long fired = lastFired.value();
        if (timestamp == Long.MAX_VALUE) {
            check(
                    last.value().equals(fired),
                    "last timer",
                    last.value(),
                    fired,
                    context.getCurrentKey());
            out.collect(
                    "LEDGER "
                            + context.getCurrentKey()
                            + " "
                            + count.get()
                            + " "
                            + sum.get()
                            + " "
                            + (fired / keys + 1));
            return;
        }
        long number = timestamp - 5 * keys;
        long expected = fired == null ? context.getCurrentKey() : fired + keys;
        check(number == expected, "timer", expected, number, context.getCurrentKey());
        lastFired.update(number);
    }

    private void addToBucket(int bucket) throws Exception {
        Long before = buckets.get(bucket);
        buckets.put(bucket, before == null ? 1L : before + 1);
    }

    private void checkHistory(long number, long seen, long key) throws Exception {
        long expected = number - (LIST_LIMIT - 1) * keys;
        int length = 0;
        for (Long entry : recent.get()) {
            check(entry == expected, "list element " + length, expected, entry, key);
            expected += keys;
            length++;
        }
        check(length == LIST_LIMIT, "list length", LIST_LIMIT, length, key);
        long inBuckets = 0;
        for (Map.Entry<Integer, Long> entry : buckets.entries()) {
            inBuckets += entry.getValue();
        }
        check(inBuckets == seen, "sum of map values", seen, inBuckets, key);
        long expectedSum = seen * key + keys * (seen * (seen - 1) / 2);
        check(sum.get() == expectedSum, "sum", expectedSum, sum.get(), key);
    }

    /** Carries bytes along so that the state has a size; they tell the number before. */
    private void checkBallast(long number, long key) throws Exception {
        byte[] old = ballast.value();
        if (old != null) {
            check(old.length == payload, "payload length", payload, old.length, key);
            byte expected = (byte) (number / keys - 1);
            if (payload > 0) {
                check(old[payload - 1] == expected, "payload", expected, old[payload - 1], key);
            }
        }
        byte[] next = new byte[payload];
        Arrays.fill(next, (byte) (number / keys));
        ballast.update(next);
    }

    private static void check(boolean ok, String what, Object expected, Object found, long key) {
        if (!ok) {
            throw new IllegalStateException(
                    "LEDGER VIOLATION key "
                            + key
                            + ": "
                            + what
                            + " should be "
                            + expected
                            + " but is "
                            + found);
        }
    }

    /** Counts. */
    private static final class CountAggregate implements AggregateFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long number, Long count) {
            return count + 1;
        }

        @Override
        public Long getResult(Long count) {
            return count;
        }

        @Override
        public Long merge(Long left, Long right) {
            return left + right;
        }
    }
}
