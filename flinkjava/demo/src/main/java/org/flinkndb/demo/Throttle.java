package org.flinkndb.demo;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/** Lets through so many lines a second, so that the demo lasts long enough to be watched. */
final class Throttle extends RichMapFunction<String, String> {
    private static final long serialVersionUID = 1L;

    private final long rate;
    private transient long startNanos;
    private transient long passed;

    Throttle(long rate) {
        this.rate = rate;
    }

    @Override
    public void open(OpenContext context) {
        startNanos = System.nanoTime();
    }

    @Override
    public String map(String line) {
        if (rate > 0) {
            long due = startNanos + passed++ * TimeUnit.SECONDS.toNanos(1) / rate;
            long early = due - System.nanoTime();
            if (early > TimeUnit.MILLISECONDS.toNanos(1)) {
                LockSupport.parkNanos(early);
            }
        }
        return line;
    }
}
