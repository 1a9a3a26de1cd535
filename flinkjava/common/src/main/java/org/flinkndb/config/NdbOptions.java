package org.flinkndb.config;

import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.ReadableConfig;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;

/** All configuration keys of the state backend. */
public final class NdbOptions {
    public static final ConfigOption<List<String>> ADDRESS =
            ConfigOptions.key("state.backend.ndb.address")
                    .stringType()
                    .asList()
                    .defaultValues("unix:///tmp/flinkndb.sock")
                    .withDescription(
                            "Where the state servers are: unix:///path of a socket on the same"
                                    + " host, or host:port; several are separated by semicolons and"
                                    + " tried in turn.");

    public static final ConfigOption<Recovery> RECOVERY =
            ConfigOptions.key("state.backend.ndb.recovery")
                    .enumType(Recovery.class)
                    .defaultValue(Recovery.LAZY)
                    .withDescription(
                            "After a restore, fetch rows when they are first used (lazy), or also"
                                    + " load them into the cache in the background (eager).");

    public static final ConfigOption<MemorySize> CACHE_SIZE =
            ConfigOptions.key("state.backend.ndb.cache.size")
                    .memoryType()
                    .noDefaultValue()
                    .withDescription(
                            "Heap that the object caches of a TaskManager may fill together."
                                + " Without it, state.backend.ndb.cache.memory-fraction decides.");

    public static final ConfigOption<Double> CACHE_FRACTION =
            ConfigOptions.key("state.backend.ndb.cache.memory-fraction")
                    .doubleType()
                    .defaultValue(0.4)
                    .withDescription(
                            "Share of the TaskManager's heap that the object caches may fill, 0.01"
                                    + " to 0.9.");

    public static final ConfigOption<Integer> BATCH_ROWS =
            ConfigOptions.key("state.backend.ndb.batch.max-rows")
                    .intType()
                    .defaultValue(1024)
                    .withDescription("Most entries in one write or read batch, 1 to 65536.");

    public static final ConfigOption<MemorySize> BATCH_BYTES =
            ConfigOptions.key("state.backend.ndb.batch.max-bytes")
                    .memoryType()
                    .defaultValue(MemorySize.ofMebiBytes(1))
                    .withDescription(
                            "Size at which a write batch is sent; a larger single value fills one"
                                    + " alone.");

    public static final ConfigOption<MemorySize> DIRTY_BYTES =
            ConfigOptions.key("state.backend.ndb.write.max-dirty-bytes")
                    .memoryType()
                    .defaultValue(MemorySize.ofMebiBytes(64))
                    .withDescription(
                            "Changes that one operator subtask may hold back between checkpoints"
                                    + " before it sends them.");

    public static final ConfigOption<MemorySize> UNACKNOWLEDGED_BYTES =
            ConfigOptions.key("state.backend.ndb.write.max-unacknowledged-bytes")
                    .memoryType()
                    .defaultValue(MemorySize.ofMebiBytes(32))
                    .withDescription(
                            "Bytes of writes that one operator subtask may have on the way to the"
                                    + " server; above it, it waits.");

    public static final ConfigOption<Duration> MAX_SPIN =
            ConfigOptions.key("state.backend.ndb.read.max-spin")
                    .durationType()
                    .defaultValue(Duration.ofNanos(400_000))
                    .withDescription(
                            "How long a task may stay awake for an answer before its thread is put"
                                    + " to sleep, 0 to 100 ms. Others that want the processor go"
                                    + " first. 0 saves CPU time at the cost of latency.");

    public static final ConfigOption<Duration> CONNECT_TIMEOUT =
            ConfigOptions.key("state.backend.ndb.connect-timeout")
                    .durationType()
                    .defaultValue(Duration.ofSeconds(20))
                    .withDescription(
                            "How long opening a session may take, all addresses together.");

    public static final ConfigOption<Duration> RECONNECT_TIMEOUT =
            ConfigOptions.key("state.backend.ndb.reconnect-timeout")
                    .durationType()
                    .defaultValue(Duration.ofSeconds(60))
                    .withDescription(
                            "How long an operator waits for a server that has gone before its task"
                                    + " fails.");

    public static final ConfigOption<Duration> SESSION_LEASE =
            ConfigOptions.key("state.backend.ndb.session-lease")
                    .durationType()
                    .defaultValue(Duration.ofSeconds(120))
                    .withDescription(
                            "How long the server keeps a session without a connection. Must be"
                                    + " longer than state.backend.ndb.reconnect-timeout.");

    public static final ConfigOption<Boolean> TLS =
            ConfigOptions.key("state.backend.ndb.tls.enabled")
                    .booleanType()
                    .defaultValue(false)
                    .withDescription("Use TLS towards host:port addresses.");

    public static final ConfigOption<String> TLS_CA =
            ConfigOptions.key("state.backend.ndb.tls.ca")
                    .stringType()
                    .noDefaultValue()
                    .withDescription(
                            "PEM file of the authority that signed the server's certificate;"
                                    + " without it, Java's trust store.");

    public static final ConfigOption<String> TLS_CERT =
            ConfigOptions.key("state.backend.ndb.tls.cert")
                    .stringType()
                    .noDefaultValue()
                    .withDescription("PEM file of the client certificate.");

    public static final ConfigOption<String> TLS_KEY =
            ConfigOptions.key("state.backend.ndb.tls.key")
                    .stringType()
                    .noDefaultValue()
                    .withDescription("PEM file (PKCS 8) of the client certificate's key.");

    public static final ConfigOption<String> TOKEN_FILE =
            ConfigOptions.key("state.backend.ndb.token-file")
                    .stringType()
                    .noDefaultValue()
                    .withDescription("File with the token that the server asks for.");

    public static final ConfigOption<String> HANDLE_ADDRESS =
            ConfigOptions.key("state.backend.ndb.handle-address")
                    .stringType()
                    .noDefaultValue()
                    .withDescription(
                            "Address that references in checkpoints carry, when the JobManager"
                                    + " reaches the server by another one than the TaskManagers.");

    private NdbOptions() {}

    /** Every option, for documentation and checks. */
    public static List<ConfigOption<?>> all() {
        return Collections.unmodifiableList(
                Arrays.asList(
                        ADDRESS,
                        RECOVERY,
                        CACHE_SIZE,
                        CACHE_FRACTION,
                        BATCH_ROWS,
                        BATCH_BYTES,
                        DIRTY_BYTES,
                        UNACKNOWLEDGED_BYTES,
                        MAX_SPIN,
                        CONNECT_TIMEOUT,
                        RECONNECT_TIMEOUT,
                        SESSION_LEASE,
                        TLS,
                        TLS_CA,
                        TLS_CERT,
                        TLS_KEY,
                        TOKEN_FILE,
                        HANDLE_ADDRESS));
    }

    /** A copy of a configuration with those of our keys that are set in another one on top. */
    public static Configuration overlay(Configuration base, ReadableConfig top) {
        Configuration result = new Configuration(base);
        all().forEach(option -> overlay(result, option, top));
        return result;
    }

    private static <T> void overlay(
            Configuration result, ConfigOption<T> option, ReadableConfig top) {
        top.getOptional(option).ifPresent(value -> result.set(option, value));
    }

    /** What to do with state after a restore. */
    public enum Recovery {
        LAZY,
        EAGER
    }
}
