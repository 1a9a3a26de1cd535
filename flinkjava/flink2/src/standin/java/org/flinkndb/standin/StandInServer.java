package org.flinkndb.standin;

import org.flinkndb.testutil.ServerProcess;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Runs one state server for all tests of a JVM. JUnit finds it by META-INF/services. */
public final class StandInServer implements LauncherSessionListener {
    private static final String ADDRESS = "flinkndb.standin.address";

    private Path folder;
    private ServerProcess server;

    /** Where the server listens. */
    public static String address() {
        return System.getProperty(ADDRESS);
    }

    @Override
    public void launcherSessionOpened(LauncherSession session) {
        try {
            folder = Files.createTempDirectory("flinkndb");
            server = ServerProcess.start(folder);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
        System.setProperty(ADDRESS, server.address());
    }

    @Override
    public void launcherSessionClosed(LauncherSession session) {
        server.close();
    }
}
