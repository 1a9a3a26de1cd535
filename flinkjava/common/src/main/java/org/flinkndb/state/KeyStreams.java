package org.flinkndb.state;

import org.apache.flink.util.FlinkRuntimeException;
import org.flinkndb.client.EntryBatch;

import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** Streams of what the keys of scanned rows say, with neighbours that say the same taken together. */
final class KeyStreams {
    private KeyStreams() {}

    /** Reads something of the key of row i; null = leave it out. */
    interface Reader<T> {
        T read(EntryBatch rows, int i) throws IOException;
    }

    /** Length of the beginning of row i's key that tells it from its neighbours. */
    interface PrefixLength {
        int of(EntryBatch rows, int i) throws IOException;
    }

    static <T> Stream<T> of(RowScan scan, Reader<T> reader, PrefixLength prefix) {
        Iterator<T> iterator = new RowIterator<>(scan, reader, prefix);
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(iterator, 0), false);
    }

    private static final class RowIterator<T> implements Iterator<T> {
        private final RowScan scan;
        private final Reader<T> reader;
        private final PrefixLength prefix;
        private EntryBatch rows = new EntryBatch(1);
        private int at;
        private byte[] last;
        private int lastGroup = -1;
        private T upcoming;

        private RowIterator(RowScan scan, Reader<T> reader, PrefixLength prefix) {
            this.scan = scan;
            this.reader = reader;
            this.prefix = prefix;
        }

        @Override
        public boolean hasNext() {
            try {
                while (upcoming == null) {
                    if (at == rows.size()) {
                        if (!scan.next()) {
                            return false;
                        }
                        rows = scan.page();
                        at = 0;
                    }
                    upcoming = read(at++);
                }
                return true;
            } catch (IOException e) {
                throw new FlinkRuntimeException("Cannot scan the keys of a state.", e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new FlinkRuntimeException("Interrupted while scanning keys.", e);
            }
        }

        private T read(int i) throws IOException {
            int length = prefix.of(rows, i);
            int start = rows.keyOffset(i);
            if (last != null
                    && lastGroup == rows.group(i)
                    && Arrays.equals(rows.keyData(), start, start + length, last, 0, last.length)) {
                return null;
            }
            last = Arrays.copyOfRange(rows.keyData(), start, start + length);
            lastGroup = rows.group(i);
            return reader.read(rows, i);
        }

        @Override
        public T next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            T result = upcoming;
            upcoming = null;
            return result;
        }
    }
}
