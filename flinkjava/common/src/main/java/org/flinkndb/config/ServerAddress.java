package org.flinkndb.config;

import java.io.Serializable;
import java.util.Objects;

/** Where a state server listens: a Unix socket or host and port. Immutable. */
public final class ServerAddress implements Serializable {
    private static final long serialVersionUID = 1L;
    private static final String UNIX = "unix://";

    /** Absolute path of the socket, or null. */
    private final String socketPath;

    private final String host;
    private final int port;

    private ServerAddress(String socketPath, String host, int port) {
        this.socketPath = socketPath;
        this.host = host;
        this.port = port;
    }

    /**
     * Reads {@code unix:///path} or {@code host:port}.
     *
     * @throws IllegalArgumentException naming the key and what is allowed
     */
    public static ServerAddress parse(String key, String text) {
        if (text.startsWith(UNIX + "/")) {
            return new ServerAddress(text.substring(UNIX.length()), null, 0);
        }
        String address = text.startsWith("tcp://") ? text.substring("tcp://".length()) : text;
        int colon = address.lastIndexOf(':');
        if (colon > 0 && !text.startsWith(UNIX)) {
            try {
                int port = Integer.parseInt(address.substring(colon + 1));
                if (port > 0 && port < 65536) {
                    return new ServerAddress(null, address.substring(0, colon), port);
                }
            } catch (NumberFormatException e) {
                // falls through to the message below, which says what is allowed
            }
        }
        throw new IllegalArgumentException(
                key + ": found '" + text + "', allowed are unix:///path/of/socket and host:port");
    }

    public boolean isUnix() {
        return socketPath != null;
    }

    public String socketPath() {
        return socketPath;
    }

    public String host() {
        return host;
    }

    public int port() {
        return port;
    }

    /** Beginning of the references to snapshots of this server, see docs/design.md, "Handle". */
    public String uriPrefix() {
        return isUnix() ? "ndb://unix" + socketPath : "ndb://" + host + ":" + port;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof ServerAddress && toString().equals(other.toString());
    }

    @Override
    public int hashCode() {
        return Objects.hashCode(toString());
    }

    @Override
    public String toString() {
        return isUnix() ? UNIX + socketPath : host + ":" + port;
    }
}
