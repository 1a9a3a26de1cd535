package org.flinkndb.fs;

import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.Path;
import org.flinkndb.canonical.CanonicalRows;
import org.flinkndb.canonical.KeyGroupEncoder;
import org.flinkndb.canonical.KeyGroupOffsets;
import org.flinkndb.client.SnapshotClient;

import java.io.IOException;

/**
 * A snapshot as a file in the layout of Flink's canonical savepoints: the header, and each key group at its
 * virtual offset, written from the server's rows while it is read. What is not there (sizes of key groups
 * are not known beforehand) cannot be read over: after the header and after each key group the reader must
 * seek. So nobody takes a copy of a part for the whole. For one thread, but {@link #close} may come from
 * another one to end a read that waits.
 */
final class SnapshotInputStream extends FSDataInputStream {
    private final Path path;
    private final SnapshotClient client;
    private final String snapshotId;
    private final SnapshotClient.Description snapshot;
    private final byte[] header;

    /** What is read now: the header, or some rows. */
    private byte[] data;

    private int at;
    private int end;

    /** Position in the file of {@code data[0]}. */
    private long start;

    /** Null while the header is read, and at the end of a key group. */
    private KeyGroupEncoder encoder;

    private volatile CanonicalRows rows;
    private volatile boolean closed;

    SnapshotInputStream(
            Path path,
            SnapshotClient client,
            String snapshotId,
            SnapshotClient.Description snapshot) {
        this.path = path;
        this.client = client;
        this.snapshotId = snapshotId;
        this.snapshot = snapshot;
        this.header = snapshot.schema().bytes();
        atHeader(0);
    }

    private void atHeader(int position) {
        data = header;
        start = 0;
        at = position;
        end = header.length;
        encoder = null;
    }

    @Override
    public void seek(long desired) throws IOException {
        if (desired == getPos()) {
            return;
        }
        if (desired >= 0 && desired <= header.length) {
            atHeader((int) desired);
            return;
        }
        int group = KeyGroupOffsets.keyGroupAt(desired);
        if (group < snapshot.firstGroup() || group > snapshot.lastGroup()) {
            throw new IOException(
                    path + ": no key group of the snapshot starts at offset " + desired);
        }
        boolean next = encoder == null && rows != null && rows.isValid();
        if (!next || rows.keyGroup() != group) {
            open(group);
        }
        start = desired;
        at = 0;
        end = 0;
        encoder = new KeyGroupEncoder(rows);
    }

    /** Starts to read at a key group, and goes on with those that follow. */
    private void open(int group) throws IOException {
        if (rows != null) {
            rows.close();
        }
        rows =
                new CanonicalRows(
                        client.read(snapshotId, group, snapshot.lastGroup()),
                        snapshot.schema().states(),
                        snapshot.keyGroupCount());
        if (closed) { // before it could be
            rows.close();
        }
        if (!rows.next() || rows.keyGroup() != group) {
            throw new IOException(
                    path
                            + ": key group "
                            + group
                            + " is empty, which was not known when the snapshot was taken, and"
                            + " Flink cannot read empty ones. Take another snapshot, or a savepoint"
                            + " in the canonical format.");
        }
    }

    @Override
    public long getPos() {
        return start + at;
    }

    @Override
    public int read() throws IOException {
        ensureData();
        return data[at++] & 0xFF;
    }

    @Override
    public int read(byte[] to, int offset, int length) throws IOException {
        if (length == 0) {
            return 0;
        }
        ensureData();
        int n = Math.min(length, end - at);
        System.arraycopy(data, at, to, offset, n);
        at += n;
        return n;
    }

    private void ensureData() throws IOException {
        if (closed) {
            throw new IOException(path + ": the stream is closed");
        }
        if (at < end) {
            return;
        }
        if (encoder == null) {
            throw new IOException(
                    path
                            + ": a snapshot of FlinkNDB is read by key group, at the offsets of its"
                            + " handle. It cannot be copied as a file: its rows are in the state"
                            + " server. Take a savepoint in the canonical format to have a copy.");
        }
        start += end;
        at = 0;
        boolean more = encoder.fill();
        data = encoder.data();
        end = encoder.length();
        if (!more) {
            encoder = null;
        }
    }

    @Override
    public void close() {
        closed = true;
        CanonicalRows open = rows;
        if (open != null) {
            open.close();
        }
    }
}
