package org.flinkndb.benchmarks;

import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Single operations on values of 1,000 bytes, 100 MB together, which FlinkNDB may not cache (run it
 * with {@code -p cache=4mb}): what an operation costs that has to ask the server.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.Throughput)
@OutputTimeUnit(TimeUnit.MILLISECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 5, time = 2)
public class MissBenchmark {
    private static final int BYTES = 1_000;

    private ValueState<byte[]> value;

    @Setup
    public void fill(BackendState b) throws Exception {
        value =
                b.state(
                        new ValueStateDescriptor<>(
                                "value", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
        for (long key = 0; key < BackendState.KEYS; key++) {
            b.keyed.setCurrentKey(key);
            value.update(someBytes());
        }
    }

    private static byte[] someBytes() {
        byte[] bytes = new byte[BYTES];
        ThreadLocalRandom.current().nextBytes(bytes);
        return bytes;
    }

    @Benchmark
    public byte[] missedGet(BackendState b) throws Exception {
        b.anyKey();
        return value.value();
    }

    @Benchmark
    public void missedGetAndUpdate(BackendState b) throws Exception {
        b.anyKey();
        byte[] bytes = value.value().clone();
        bytes[0]++;
        value.update(bytes);
    }
}
