package org.flinkndb.fs;

import org.apache.flink.core.fs.FileStatus;
import org.apache.flink.core.fs.Path;

/** Status of a snapshot's reference. */
final class SnapshotStatus implements FileStatus {
    private final Path path;
    private final long length;

    SnapshotStatus(Path path, long length) {
        this.path = path;
        this.length = length;
    }

    @Override
    public long getLen() {
        return length;
    }

    @Override
    public long getBlockSize() {
        return length;
    }

    @Override
    public short getReplication() {
        return 1;
    }

    @Override
    public long getModificationTime() {
        return 0;
    }

    @Override
    public long getAccessTime() {
        return 0;
    }

    @Override
    public boolean isDir() {
        return false;
    }

    @Override
    public Path getPath() {
        return path;
    }
}
