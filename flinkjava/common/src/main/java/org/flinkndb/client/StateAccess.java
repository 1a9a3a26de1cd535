package org.flinkndb.client;

import org.apache.flink.util.FlinkRuntimeException;

import java.io.IOException;

/** Runs accesses to the server where Flink's interfaces do not let their exceptions through. */
public final class StateAccess {
    private StateAccess() {}

    /** An access without result. */
    public interface Action {
        void run() throws IOException, InterruptedException;
    }

    /** An access with a result. */
    public interface Supplier<T> {
        T get() throws IOException, InterruptedException;
    }

    public static void run(Action action) {
        get(
                () -> {
                    action.run();
                    return null;
                });
    }

    public static <T> T get(Supplier<T> supplier) {
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
    public static <T> T interruptible(Supplier<T> supplier) throws IOException {
        try {
            return supplier.get();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("Interrupted during a state access.", e);
        }
    }
}
