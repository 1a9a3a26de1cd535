package org.flinkndb.benchmarks;

import org.apache.flink.api.common.functions.AggregateFunction;
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
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.infra.Blackhole;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;

/**
 * Single operations of keyed state, after the cases of Flink's own state benchmarks
 * (github.com/apache/flink-benchmarks), on a working set that is cached: 100,000 keys, lists of 20
 * elements, maps of 10 entries. `make jmh` runs it for all backends.
 */
public class StateBenchmark extends OperationBenchmark {
    private static final int LIST_LENGTH = 20;
    private static final int MAP_ENTRIES = 10;

    private ValueState<Long> value;
    private ListState<Long> list;
    private ListState<Long> growing;
    private MapState<Long, Double> map;
    private ReducingState<Long> sum;
    private AggregatingState<Long, Long> total;
    private KeyGroupedInternalPriorityQueue<TimerHeapInternalTimer<Long, VoidNamespace>> timers;
    private List<Long> elements;
    private int adds;

    @Setup
    public void fill(BackendState b) throws Exception {
        use(b);
        value = b.state(new ValueStateDescriptor<>("value", Types.LONG));
        list = b.state(new ListStateDescriptor<>("list", Types.LONG));
        growing = b.state(new ListStateDescriptor<>("growing", Types.LONG));
        map = b.state(new MapStateDescriptor<>("map", Types.LONG, Types.DOUBLE));
        sum = b.state(new ReducingStateDescriptor<>("sum", Long::sum, Types.LONG));
        total = b.state(new AggregatingStateDescriptor<>("total", new Total(), Types.LONG));
        timers =
                b.keyed.create(
                        "timers",
                        new TimerSerializer<>(
                                LongSerializer.INSTANCE, VoidNamespaceSerializer.INSTANCE));
        elements = new ArrayList<>();
        for (long i = 0; i < LIST_LENGTH; i++) {
            elements.add(i);
        }
        for (long key = 0; key < BackendState.KEYS; key++) {
            b.keyed.setCurrentKey(key);
            value.update(key);
            sum.add(key);
            total.add(key);
            timers.add(timer(key));
            if (key % 10 == 0) {
                list.update(elements);
                for (long i = 0; i < MAP_ENTRIES; i++) {
                    map.put(i, (double) i);
                }
            }
        }
    }

    private static TimerHeapInternalTimer<Long, VoidNamespace> timer(long key) {
        return new TimerHeapInternalTimer<>(
                ThreadLocalRandom.current().nextLong(1L << 40), key, VoidNamespace.INSTANCE);
    }

    /** Goes to one of the keys that have a list and a map. */
    private void largeKey() {
        backend()
                .keyed
                .setCurrentKey(10L * ThreadLocalRandom.current().nextInt(BackendState.KEYS / 10));
    }

    private static long mapKey() {
        return ThreadLocalRandom.current().nextInt(MAP_ENTRIES);
    }

    @Benchmark
    public Long valueGet() throws Exception {
        backend().anyKey();
        return value.value();
    }

    @Benchmark
    public void valueUpdate() throws Exception {
        backend().anyKey();
        value.update(ThreadLocalRandom.current().nextLong());
    }

    @Benchmark
    public void valueGetAndUpdate() throws Exception {
        backend().anyKey();
        value.update(value.value() + 1);
    }

    @Benchmark
    public void listAdd() throws Exception {
        backend().anyKey();
        growing.add(1L);
        if (++adds % 1_000_000 == 0) { // keeps the lists short
            for (long key = 0; key < BackendState.KEYS; key++) {
                backend().keyed.setCurrentKey(key);
                growing.clear();
            }
        }
    }

    @Benchmark
    public void listGet(Blackhole hole) throws Exception {
        largeKey();
        list.get().forEach(hole::consume);
    }

    @Benchmark
    public void listUpdate() throws Exception {
        largeKey();
        list.update(elements);
    }

    @Benchmark
    public Double mapGet() throws Exception {
        largeKey();
        return map.get(mapKey());
    }

    @Benchmark
    public void mapPut() throws Exception {
        largeKey();
        map.put(mapKey(), ThreadLocalRandom.current().nextDouble());
    }

    @Benchmark
    public void mapIterate(Blackhole hole) throws Exception {
        largeKey();
        for (Map.Entry<Long, Double> entry : map.entries()) {
            hole.consume(entry.getKey());
            hole.consume(entry.getValue());
        }
    }

    @Benchmark
    public void reducingAdd() throws Exception {
        backend().anyKey();
        sum.add(1L);
    }

    @Benchmark
    public void aggregatingAdd() throws Exception {
        backend().anyKey();
        total.add(1L);
    }

    @Benchmark
    public void timerPollAndAdd() {
        timers.add(timer(timers.poll().getKey()));
    }

    /** Adds numbers. */
    private static final class Total implements AggregateFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;

        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long number, Long total) {
            return total + number;
        }

        @Override
        public Long getResult(Long total) {
            return total;
        }

        @Override
        public Long merge(Long left, Long right) {
            return left + right;
        }
    }
}
