package org.flinkndb.fs;

import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.fs.Path;

import java.io.IOException;

/** Reads a snapshot's schema, and says what to do when more is asked for. */
final class SchemaInputStream extends FSDataInputStream {
    private final Path path;
    private final byte[] schema;
    private int position;

    SchemaInputStream(Path path, byte[] schema) {
        this.path = path;
        this.schema = schema;
    }

    @Override
    public void seek(long desired) throws IOException {
        if (desired < 0 || desired > schema.length) {
            throw noRows();
        }
        position = (int) desired;
    }

    @Override
    public long getPos() {
        return position;
    }

    @Override
    public int read() throws IOException {
        if (position >= schema.length) {
            throw noRows();
        }
        return schema[position++] & 0xFF;
    }

    @Override
    public int read(byte[] to, int offset, int length) throws IOException {
        if (length == 0) {
            return 0;
        }
        if (position >= schema.length) {
            throw noRows();
        }
        int n = Math.min(length, schema.length - position);
        System.arraycopy(schema, position, to, offset, n);
        position += n;
        return n;
    }

    private IOException noRows() {
        return new IOException(
                path
                        + ": the rows of a native snapshot are in the state server, not in a file."
                        + " Take a savepoint in the canonical format to read them elsewhere.");
    }
}
