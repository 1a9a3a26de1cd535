package org.flinkndb.benchmarks;

import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

import java.util.concurrent.TimeUnit;

/** How benchmarks of single operations are measured. */
@State(Scope.Thread)
@BenchmarkMode(Mode.Throughput)
@OutputTimeUnit(TimeUnit.MILLISECONDS)
@Fork(1)
@Warmup(iterations = 3, time = 2)
@Measurement(iterations = 5, time = 2)
public abstract class OperationBenchmark {
    private BackendState backend;

    /**
     * To be called by the set-up method with its parameter. JMH gives a benchmark method another
     * instance than the set-up method of its class: keys set there would not count.
     */
    final void use(BackendState filled) {
        backend = filled;
    }

    final BackendState backend() {
        return backend;
    }
}
