package org.flinkndb.fs;

import org.apache.flink.core.fs.Path;
import org.flinkndb.config.ServerAddress;

import java.io.IOException;

/**
 * The path of a snapshot's reference: {@code ndb://host:port/refs/ID}, or {@code
 * ndb://unix/path/of/socket/refs/ID} for a server on a Unix socket.
 */
public final class SnapshotPath {
    private static final String UNIX = "unix";
    private static final String REFS = "/refs/";

    private final ServerAddress address;
    private final String snapshotId;

    private SnapshotPath(ServerAddress address, String snapshotId) {
        this.address = address;
        this.snapshotId = snapshotId;
    }

    /** Reads a path. */
    public static SnapshotPath parse(Path path) throws IOException {
        String authority = path.toUri().getAuthority();
        String file = path.toUri().getPath();
        int refs = file.lastIndexOf(REFS);
        String id = refs < 0 ? "" : file.substring(refs + REFS.length());
        if (authority == null || id.isEmpty() || id.contains("/")) {
            throw new IOException(
                    path
                            + " is no reference to a snapshot, which look like"
                            + " ndb://host:port/refs/ID");
        }
        try {
            String text = authority.equals(UNIX) ? "unix://" + file.substring(0, refs) : authority;
            return new SnapshotPath(ServerAddress.parse(path.toString(), text), id);
        } catch (IllegalArgumentException e) {
            throw new IOException(e.getMessage(), e);
        }
    }

    public ServerAddress address() {
        return address;
    }

    public String snapshotId() {
        return snapshotId;
    }
}
