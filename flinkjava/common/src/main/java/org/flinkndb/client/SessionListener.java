package org.flinkndb.client;

/** Hears what a session does, for metrics. Called by several threads; must be quick. */
public interface SessionListener {
    /** A request was answered after so many nanoseconds. */
    default void roundTrip(long nanos) {}

    /** Entries and their bytes were sent. */
    default void sent(int rows, long bytes) {}

    /** Rows and their bytes were received. */
    default void received(int rows, long bytes) {}

    /** The connection was lost and is being made again. */
    default void reconnecting() {}

    /** Hears nothing. */
    static SessionListener none() {
        return new SessionListener() {};
    }
}
