package org.flinkndb.state;

import org.apache.flink.util.FlinkRuntimeException;

import java.io.IOException;

/** Runs state accesses where Flink's interfaces do not let their exceptions through. */
final class StateAccess {
    private StateAccess() {}

    /** An access without result. */
    interface Action {
        void run() throws IOException, InterruptedException;
    }

    /** An access with a result. */
    interface Supplier<T> {
        T get() throws IOException, InterruptedException;
    }

    static void run(Action action) {
        get(
                () -> {
                    action.run();
                    return null;
                });
    }

    static <T> T get(Supplier<T> supplier) {
        try {
            return supplier.get();
        } catch (IOException e) {
            throw new FlinkRuntimeException("State access failed.", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new FlinkRuntimeException("Interrupted during a state access.", e);
        }
    }

    /** As {@link #get}, where an IOException may be thrown. */
    static <T> T interruptible(Supplier<T> supplier) throws IOException {
        try {
            return supplier.get();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("Interrupted during a state access.", e);
        }
    }
}
