package org.flinkndb.standin;

import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.ServerProcess;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

import java.io.IOException;
import java.io.UncheckedIOException;

/**
 * Runs one state server for all tests of a JVM, and says at the end what went through it. JUnit finds
 * it by META-INF/services.
 */
public final class StandInServer implements LauncherSessionListener {
    private static final ServerExtension SERVER = new ServerExtension();

    /** The server that is running. */
    public static ServerProcess server() {
        return SERVER.server();
    }

    @Override
    public void launcherSessionOpened(LauncherSession session) {
        try {
            SERVER.start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void launcherSessionClosed(LauncherSession session) {
        try {
            System.out.printf(
                    "The state server worked through %,d frames, with %,d rows written and %,d"
                            + " read.%n",
                    server().counter("flinkndb_frame_seconds_count"),
                    server().counter("flinkndb_written_rows_total"),
                    server().counter("flinkndb_read_rows_total"));
            SERVER.stop();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
