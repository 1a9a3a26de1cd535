package org.flinkndb.timer;

import org.apache.flink.streaming.api.operators.InternalTimer;

import java.util.Collections;
import java.util.List;

/**
 * Which timer is being handled, and which will be next: what they will ask for can be read with what
 * this one asks for. For the task thread.
 */
public final class FiringTimers {
    /** Timers that are due later than this, in milliseconds, after the one being handled may not fire with it. */
    private static final long TOGETHER_MILLIS = 1000;

    private NdbTimerQueue<?> queue;
    private InternalTimer<?, ?> timer;

    /** To be told of each element that leaves a queue as its first. */
    void polled(NdbTimerQueue<?> from, Object element) {
        if (element instanceof InternalTimer) {
            queue = from;
            timer = (InternalTimer<?, ?>) element;
        }
    }

    /** The timer that fired last, or null. */
    public InternalTimer<?, ?> last() {
        return timer;
    }

    /** The timers that are likely to fire right after the last one, in order. */
    public List<InternalTimer<?, ?>> next(int limit) {
        if (timer == null) {
            return Collections.emptyList();
        }
        long end = timer.getTimestamp() + TOGETHER_MILLIS;
        return queue.timersUntil(end < timer.getTimestamp() ? Long.MAX_VALUE : end, limit);
    }
}
