package org.flinkndb.testutil;

import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/** Runs one {@link ServerProcess} for all tests of a class. Register it as a static field. */
public final class ServerExtension implements BeforeAllCallback, AfterAllCallback {
    private Path folder;
    private ServerProcess server;

    @Override
    public void beforeAll(ExtensionContext context) throws Exception {
        start();
    }

    @Override
    public void afterAll(ExtensionContext context) throws IOException {
        stop();
    }

    /** For those that do not come by JUnit's callbacks. */
    public void start() throws IOException, InterruptedException {
        folder = Files.createTempDirectory("flinkndb");
        server = ServerProcess.start(folder);
    }

    /** Ends the server and deletes its folder. */
    public void stop() throws IOException {
        if (server != null) {
            server.close();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }

    public ServerProcess server() {
        return server;
    }

    /** Value for {@code state.backend.ndb.address}. */
    public String address() {
        return server.address();
    }
}
