package org.flinkndb.testutil;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A real state server in a process of its own, listening on a Unix socket in a temporary folder. The
 * binary is {@code dist/flinkndb} below the project's root, or what the system property {@code
 * flinkndb.server} names.
 */
public final class ServerProcess implements AutoCloseable {
    private static final long START_SECONDS = 30;
    private static final Pattern HTTP_ENDPOINT = Pattern.compile("http://[0-9.:]+");

    private final Path folder;
    private final String store;
    private final List<String> moreFlags;
    private Process process;

    private ServerProcess(Path folder, String store, List<String> moreFlags) {
        this.folder = folder;
        this.store = store;
        this.moreFlags = moreFlags;
    }

    /**
     * Starts a server over the embedded store in the folder, or over the store that the system property
     * {@code flinkndb.store} names.
     */
    public static ServerProcess start(Path folder) throws IOException, InterruptedException {
        String store = System.getProperty("flinkndb.store", "pebble:" + folder.resolve("store"));
        return start(folder, store, Collections.emptyList());
    }

    /** Starts a server over the named store, with more flags of {@code flinkndb serve}. */
    public static ServerProcess start(Path folder, String store, List<String> moreFlags)
            throws IOException, InterruptedException {
        ServerProcess server = new ServerProcess(folder, store, moreFlags);
        server.start();
        return server;
    }

    /** Value for {@code state.backend.ndb.address}. */
    public String address() {
        return "unix://" + socket();
    }

    public long pid() {
        return process.pid();
    }

    /** What the server has printed so far. */
    public String log() throws IOException {
        return Files.exists(logFile()) ? Files.readString(logFile()) : "";
    }

    /** The sum of all samples of one of the server's metrics. */
    public long counter(String name) throws IOException {
        double sum = 0;
        for (String line : metrics().split("\n")) {
            if (line.startsWith(name + " ") || line.startsWith(name + "{")) {
                sum += Double.parseDouble(line.substring(line.lastIndexOf(' ')));
            }
        }
        return (long) sum;
    }

    private String metrics() throws IOException {
        Matcher endpoint = HTTP_ENDPOINT.matcher(log());
        String last = null; // each start has one of its own
        while (endpoint.find()) {
            last = endpoint.group();
        }
        if (last == null) {
            throw new IOException("the server's log does not name its HTTP endpoint:\n" + log());
        }
        try (InputStream in = new URL(last + "/metrics").openStream()) {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** Ends the process as a power failure of its host would: without a chance to tidy up. */
    public void kill() throws InterruptedException {
        process.destroyForcibly();
        process.waitFor();
    }

    /** Stops the process without ending it: it answers nothing until {@link #thaw}. */
    public void freeze() throws IOException, InterruptedException {
        signal("STOP");
    }

    /** Lets a frozen process go on. */
    public void thaw() throws IOException, InterruptedException {
        signal("CONT");
    }

    private void signal(String name) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + name, Long.toString(pid())).start().waitFor();
    }

    /** Starts it again on the same socket and store. */
    public void restart() throws IOException, InterruptedException {
        start();
    }

    @Override
    public void close() {
        process.destroy();
        try {
            if (!process.waitFor(10, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    private Path socket() {
        return folder.resolve("s.sock");
    }

    private Path logFile() {
        return folder.resolve("server.log");
    }

    private void start() throws IOException, InterruptedException {
        List<String> command = new ArrayList<>();
        command.add(binary().toString());
        command.add("serve");
        command.add("--listen");
        command.add("unix://" + socket());
        command.add("--store");
        command.add(store);
        command.add("--http");
        command.add("127.0.0.1:0");
        command.addAll(moreFlags);
        process =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(ProcessBuilder.Redirect.appendTo(logFile().toFile()))
                        .start();
        awaitReady();
    }

    /** Ready when a client command gets an answer. */
    private void awaitReady() throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS);
        while (true) {
            if (!process.isAlive()) {
                throw new IOException("the server ended at once:\n" + log());
            }
            if (answers()) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IOException("the server does not answer:\n" + log());
            }
            TimeUnit.MILLISECONDS.sleep(20);
        }
    }

    private boolean answers() throws IOException, InterruptedException {
        List<String> command =
                new ArrayList<>(List.of(binary().toString(), "status", "--address", address()));
        int token = moreFlags.indexOf("--token-file");
        if (token >= 0) {
            command.addAll(moreFlags.subList(token, token + 2));
        }
        Process status =
                new ProcessBuilder(command)
                        .redirectErrorStream(true)
                        .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                        .start();
        return status.waitFor() == 0;
    }

    private static Path binary() throws IOException {
        String configured = System.getProperty("flinkndb.server");
        if (configured != null) {
            return Path.of(configured);
        }
        for (File at = new File("").getAbsoluteFile(); at != null; at = at.getParentFile()) {
            Path candidate = at.toPath().resolve("dist/flinkndb");
            if (Files.isExecutable(candidate)) {
                return candidate;
            }
        }
        throw new IOException("dist/flinkndb is missing: run `make build` first");
    }
}
