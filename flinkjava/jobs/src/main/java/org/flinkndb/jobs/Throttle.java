package org.flinkndb.jobs;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Lets through so many records a second; 0 = all that come. */
public final class Throttle<T> extends RichMapFunction<T, T> {
    private static final long serialVersionUID = 1L;

    private final long rate;
    private transient long startNanos;
    private transient long passed;

    public Throttle(long rate) {
        this.rate = rate;
    }

    @Override
    public void open(OpenContext context) {
        startNanos = System.nanoTime();
        passed = 0;
    }

    @Override
    public T map(T record) {
        if (rate > 0) {
            long due = startNanos + passed++ * TimeUnit.SECONDS.toNanos(1) / rate;
            long early = due - System.nanoTime();
            if (early > TimeUnit.MILLISECONDS.toNanos(1)) {
                LockSupport.parkNanos(early);
            }
        }
        return record;
    }
}
