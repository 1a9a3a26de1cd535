package org.flinkndb.config;

import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.IllegalConfigurationException;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.ReadableConfig;

import java.io.Serializable;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The configuration of the backend, read and checked. Immutable. */
public final class NdbSettings implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final Duration LONGEST_SPIN = Duration.ofMillis(100);

    private final List<ServerAddress> addresses;
    private final NdbOptions.Recovery recovery;
    private final Long cacheBytes;
    private final double cacheFraction;
    private final int batchRows;
    private final int batchBytes;
    private final long dirtyBytes;
    private final long unacknowledgedBytes;
    private final Duration maxSpin;
    private final Duration connectTimeout;
    private final Duration reconnectTimeout;
    private final Duration sessionLease;
    private final TlsSettings tls;
    private final String tokenFile;
    private final ServerAddress handleAddress;

    private NdbSettings(ReadableConfig config) {
        addresses = addresses(config);
        recovery = config.get(NdbOptions.RECOVERY);
        cacheBytes =
                config.getOptional(NdbOptions.CACHE_SIZE).map(MemorySize::getBytes).orElse(null);
        cacheFraction = fraction(config);
        batchRows =
                (int) within(NdbOptions.BATCH_ROWS, config.get(NdbOptions.BATCH_ROWS), 1, 65536);
        batchBytes =
                (int)
                        within(
                                NdbOptions.BATCH_BYTES,
                                bytes(config, NdbOptions.BATCH_BYTES),
                                1024,
                                64 << 20);
        dirtyBytes =
                within(
                        NdbOptions.DIRTY_BYTES,
                        bytes(config, NdbOptions.DIRTY_BYTES),
                        1024,
                        1L << 40);
        unacknowledgedBytes =
                within(
                        NdbOptions.UNACKNOWLEDGED_BYTES,
                        bytes(config, NdbOptions.UNACKNOWLEDGED_BYTES),
                        1024,
                        1L << 40);
        maxSpin = spin(config);
        connectTimeout = positive(config, NdbOptions.CONNECT_TIMEOUT);
        reconnectTimeout = positive(config, NdbOptions.RECONNECT_TIMEOUT);
        sessionLease = positive(config, NdbOptions.SESSION_LEASE);
        if (sessionLease.compareTo(reconnectTimeout) <= 0) {
            throw new IllegalConfigurationException(
                    NdbOptions.SESSION_LEASE.key()
                            + ": found "
                            + sessionLease
                            + ", must be longer than "
                            + NdbOptions.RECONNECT_TIMEOUT.key()
                            + " ("
                            + reconnectTimeout
                            + ")");
        }
        tls = TlsSettings.fromConfig(config);
        tokenFile = config.getOptional(NdbOptions.TOKEN_FILE).orElse(null);
        handleAddress =
                config.getOptional(NdbOptions.HANDLE_ADDRESS)
                        .map(text -> address(NdbOptions.HANDLE_ADDRESS, text))
                        .orElse(null);
    }

    /**
     * Reads and checks all keys.
     *
     * @throws IllegalConfigurationException naming the key, what was found and what is allowed
     */
    public static NdbSettings fromConfig(ReadableConfig config) {
        return new NdbSettings(config);
    }

    private static List<ServerAddress> addresses(ReadableConfig config) {
        List<ServerAddress> list = new ArrayList<>();
        for (String text : config.get(NdbOptions.ADDRESS)) {
            list.add(address(NdbOptions.ADDRESS, text.trim()));
        }
        if (list.isEmpty()) {
            throw new IllegalConfigurationException(
                    NdbOptions.ADDRESS.key() + ": is empty, at least one address is needed");
        }
        return Collections.unmodifiableList(list);
    }

    private static ServerAddress address(ConfigOption<?> option, String text) {
        try {
            return ServerAddress.parse(option.key(), text);
        } catch (IllegalArgumentException e) {
            throw new IllegalConfigurationException(e.getMessage(), e);
        }
    }

    private static double fraction(ReadableConfig config) {
        double fraction = config.get(NdbOptions.CACHE_FRACTION);
        if (!(fraction >= 0.01 && fraction <= 0.9)) {
            throw new IllegalConfigurationException(
                    NdbOptions.CACHE_FRACTION.key()
                            + ": found "
                            + fraction
                            + ", allowed are 0.01 to 0.9");
        }
        return fraction;
    }

    private static long bytes(ReadableConfig config, ConfigOption<MemorySize> option) {
        return config.get(option).getBytes();
    }

    private static long within(ConfigOption<?> option, long value, long least, long most) {
        if (value < least || value > most) {
            throw new IllegalConfigurationException(
                    option.key() + ": found " + value + ", allowed are " + least + " to " + most);
        }
        return value;
    }

    private static Duration spin(ReadableConfig config) {
        Duration spin = config.get(NdbOptions.MAX_SPIN);
        if (spin.isNegative() || spin.compareTo(LONGEST_SPIN) > 0) {
            throw new IllegalConfigurationException(
                    NdbOptions.MAX_SPIN.key()
                            + ": found "
                            + spin
                            + ", allowed are 0 to "
                            + LONGEST_SPIN);
        }
        return spin;
    }

    private static Duration positive(ReadableConfig config, ConfigOption<Duration> option) {
        Duration duration = config.get(option);
        if (duration.isNegative() || duration.isZero()) {
            throw new IllegalConfigurationException(
                    option.key() + ": found " + duration + ", must be longer than zero");
        }
        return duration;
    }

    public List<ServerAddress> addresses() {
        return addresses;
    }

    public NdbOptions.Recovery recovery() {
        return recovery;
    }

    /** Bytes that all caches of this JVM may fill. */
    public long cacheBytes() {
        return cacheBytes != null
                ? cacheBytes
                : (long) (Runtime.getRuntime().maxMemory() * cacheFraction);
    }

    public int batchRows() {
        return batchRows;
    }

    public int batchBytes() {
        return batchBytes;
    }

    public long dirtyBytes() {
        return dirtyBytes;
    }

    public long unacknowledgedBytes() {
        return unacknowledgedBytes;
    }

    /** How long a thread may stay awake for an answer; zero = not at all. */
    public Duration maxSpin() {
        return maxSpin;
    }

    public Duration connectTimeout() {
        return connectTimeout;
    }

    public Duration reconnectTimeout() {
        return reconnectTimeout;
    }

    public Duration sessionLease() {
        return sessionLease;
    }

    public TlsSettings tls() {
        return tls;
    }

    /** File with the token, or null. */
    public String tokenFile() {
        return tokenFile;
    }

    /** Address for references, or null for the one connected to. */
    public ServerAddress handleAddress() {
        return handleAddress;
    }
}
