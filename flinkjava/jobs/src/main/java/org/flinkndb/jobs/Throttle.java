package org.flinkndb.jobs;

import org.apache.flink.api.common.functions.FilterFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Lets through so many records a second, of all or of some; 0 = all that come. */
public final class Throttle<T> extends RichMapFunction<T, T> {
    private static final long serialVersionUID = 1L;

    private final long rate;
    private final FilterFunction<T> held;
    private transient long startNanos;
    private transient long passed;

    public Throttle(long rate) {
        this(rate, record -> true);
    }

    /** Only records for which {@code held} says so are held back. */
    public Throttle(long rate, FilterFunction<T> held) {
        this.rate = rate;
        this.held = held;
    }

    @Override
    public void open(OpenContext context) {
        passed = 0;
    }

    @Override
    public T map(T record) throws Exception {
        if (rate > 0 && held.filter(record)) {
            if (passed == 0) {
                startNanos = System.nanoTime();
            }
            long due = startNanos + passed++ * TimeUnit.SECONDS.toNanos(1) / rate;
            long early = due - System.nanoTime();
            if (early > TimeUnit.MILLISECONDS.toNanos(1)) {
                LockSupport.parkNanos(early);
            }
        }
        return record;
    }
}
