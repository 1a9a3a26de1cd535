package org.flinkndb.fs;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.fs.BlockLocation;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.FSDataOutputStream;
import org.apache.flink.core.fs.FileStatus;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.FileSystemKind;
import org.apache.flink.core.fs.Path;
import org.flinkndb.client.SnapshotClient;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.config.ServerAddress;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;

/**
 * Lets Flink discard snapshots as it discards files: deleting a reference releases the snapshot. Also lets
 * other state backends read them. Paths
 * name their server; credentials, and other servers of the same store, come from the cluster's
 * configuration. Thread-safe.
 */
public final class NdbFileSystem extends FileSystem {
    private final URI uri;
    private final Configuration configuration;
    private final PendingReleases releases;

    NdbFileSystem(URI uri, Configuration configuration, PendingReleases releases) {
        this.uri = uri;
        this.configuration = configuration;
        this.releases = releases;
    }

    /**
     * A client that asks the server of the path first. The configured ones are asked too if that one is
     * among them: then all of them serve the same store.
     */
    private SnapshotClient client(SnapshotPath path) {
        String first = path.address().toString();
        List<String> addresses = new ArrayList<>();
        addresses.add(first);
        for (ServerAddress configured : NdbSettings.fromConfig(configuration).addresses()) {
            addresses.add(configured.toString());
        }
        if (addresses.lastIndexOf(first) == 0) {
            addresses = addresses.subList(0, 1);
        }
        Configuration named = new Configuration(configuration);
        named.set(NdbOptions.ADDRESS, new ArrayList<>(new LinkedHashSet<>(addresses)));
        return new SnapshotClient(NdbSettings.fromConfig(named));
    }

    private SnapshotClient.Description find(Path path) throws IOException {
        SnapshotPath snapshot = SnapshotPath.parse(path);
        return client(snapshot).find(snapshot.snapshotId());
    }

    /**
     * Releases the snapshot, later if no server answers now. True also when it is gone already:
     * discarding is idempotent.
     */
    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        SnapshotPath snapshot = SnapshotPath.parse(path);
        releases.release(client(snapshot), snapshot.snapshotId());
        return true;
    }

    @Override
    public boolean exists(Path path) throws IOException {
        return find(path) != null;
    }

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        SnapshotClient.Description found = find(path);
        if (found == null) {
            throw new FileNotFoundException(path.toString());
        }
        return new SnapshotStatus(path, found.schema().bytes().length);
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        return new FileStatus[] {getFileStatus(path)};
    }

    /** Opens the snapshot as a file in the layout of canonical savepoints. */
    @Override
    public FSDataInputStream open(Path path) throws IOException {
        SnapshotPath snapshot = SnapshotPath.parse(path);
        SnapshotClient client = client(snapshot);
        SnapshotClient.Description found = client.find(snapshot.snapshotId());
        if (found == null) {
            throw new FileNotFoundException(path + ": the state server has no such snapshot");
        }
        if (found.schema().states().isEmpty()) {
            throw new IOException(
                    path
                            + ": the snapshot was taken by a version of FlinkNDB whose snapshots"
                            + " only it can read. Start the job from it on FlinkNDB, and take a"
                            + " savepoint there.");
        }
        return new SnapshotInputStream(path, client, snapshot.snapshotId(), found);
    }

    @Override
    public FSDataInputStream open(Path path, int bufferSize) throws IOException {
        return open(path);
    }

    @Override
    public Path getWorkingDirectory() {
        return new Path(uri);
    }

    @Override
    public Path getHomeDirectory() {
        return new Path(uri);
    }

    @Override
    public URI getUri() {
        return uri;
    }

    @Override
    public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length) {
        return new BlockLocation[0];
    }

    @Override
    public boolean mkdirs(Path path) throws IOException {
        throw readOnly();
    }

    @Override
    public FSDataOutputStream create(Path path, WriteMode mode) throws IOException {
        throw readOnly();
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        throw readOnly();
    }

    @Override
    public boolean isDistributedFS() {
        return true;
    }

    /** Abstract in Flink 1.20 and gone in 2.x, hence no annotation. */
    public FileSystemKind getKind() {
        return FileSystemKind.OBJECT_STORE;
    }

    private static IOException readOnly() {
        return new IOException(
                "ndb:// holds references to snapshots only: choose another file system for"
                        + " execution.checkpointing.dir");
    }
}
