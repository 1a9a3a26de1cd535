package org.flinkndb.cache;

/** Hears how long barriers take, for metrics. Called by several threads; must be quick. */
public interface FlushListener {
    /** The changes of an epoch were handed to the session so many nanoseconds after its barrier. */
    default void flushed(long nanos) {}

    /** The snapshot was durable so many nanoseconds after its barrier. */
    default void snapshotTaken(long nanos) {}

    /** Hears nothing. */
    static FlushListener none() {
        return new FlushListener() {};
    }
}
