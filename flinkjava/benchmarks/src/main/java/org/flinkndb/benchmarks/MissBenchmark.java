package org.flinkndb.benchmarks;

import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;

import java.util.concurrent.ThreadLocalRandom;

/**
 * Single operations on values of 1,000 bytes, 100 MB together, of which FlinkNDB caches 4 MB: what an
 * operation costs that has to ask the server.
 */
public class MissBenchmark extends OperationBenchmark {
    private static final int BYTES = 1_000;

    /** A backend whose cache is small. */
    public static class Uncached extends BackendState {
        @Param({"0 ms", "400 micro"})
        private String maxSpin;

        @Override
        void configure(Configuration configuration) {
            configuration.setString("state.backend.ndb.cache.size", "4mb");
            configuration.setString("state.backend.ndb.read.max-spin", maxSpin);
        }
    }

    private ValueState<byte[]> value;

    @Setup
    public void fill(Uncached b) throws Exception {
        use(b);
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
    public byte[] missedGet() throws Exception {
        backend().anyKey();
        return value.value();
    }

    @Benchmark
    public void missedGetAndUpdate() throws Exception {
        backend().anyKey();
        byte[] bytes = value.value().clone();
        bytes[0]++;
        value.update(bytes);
    }
}
