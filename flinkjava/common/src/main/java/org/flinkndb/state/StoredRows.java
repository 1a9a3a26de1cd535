package org.flinkndb.state;

import org.apache.flink.core.memory.DataInputDeserializer;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanPage;
import org.flinkndb.client.ScanRequest;
import org.flinkndb.client.StateSession;

import java.io.IOException;
import java.util.BitSet;
import java.util.concurrent.CompletableFuture;

/**
 * The rows of a state beside its cache, for clean-up. A page tells how rows were when it was asked for.
 * The task changes what is cached only, so a row still is like that if its key is not cached and has
 * not left the cache since. For the task thread.
 */
final class StoredRows<K, N, V> {
    private static final int PAGE_ROWS = 1024;
    private static final byte[] NOTHING = new byte[0];

    private final AbstractNdbState<K, N, V> state;

    StoredRows(AbstractNdbState<K, N, V> state) {
        this.state = state;
    }

    private StateSession session() {
        return state.context().session();
    }

    /** Whether there may be rows that are not cached. */
    boolean mayHaveUncached() {
        return state.cache().mayHaveUncached();
    }

    /** Asks for the rows after one. From here on it is known which keys leave the cache. */
    CompletableFuture<ScanPage> ask(int afterGroup, byte[] afterKey) {
        state.cache().watchRemovals();
        ScanRequest request =
                RowScan.allRows(state.context(), state.wireIndex())
                        .withLimit(Math.min(PAGE_ROWS, session().limits().maxBatchRows()));
        return session().scan(afterKey == null ? request : request.after(afterGroup, afterKey));
    }

    /** The result of a request that has been answered. */
    <X> X await(CompletableFuture<X> answered) throws IOException, InterruptedException {
        return session().await(answered);
    }

    /** A row as Flink is to see it; null when the cache may know more of it than its page. */
    StoredRow<K, N, V> row(ScanPage page, int i) throws IOException, InterruptedException {
        EntryBatch rows = page.rows();
        Address<K, N> at = address(rows, i);
        if (state.cache().mayKnowMore(at, rows, i)) {
            return null;
        }
        AbstractNdbState.ValueBytes bytes = state.filtered(rows, i);
        V value = bytes == null ? null : state.valueOfRow(rows, i, bytes);
        StoredRow<K, N, V> row = new StoredRow<>(at, value, i);
        if (value != null && !bytes.asStored) {
            // Flink sees nothing to be removed.
            state.retain(row, value);
            return null;
        }
        return row;
    }

    /**
     * Sets the value of a row that was just looked at to what is left of it.
     *
     * @return false when nothing is, and the row is to be removed
     */
    boolean retain(StoredRow<K, N, V> row, V left) throws IOException, InterruptedException {
        if (state.isNothing(left)) {
            return false;
        }
        state.retain(row, left);
        return true;
    }

    /** No page is being looked at any more. */
    void done() {
        state.cache().endWatch();
    }

    /**
     * Removes rows, but not those of which the cache may know more than their page.
     *
     * @return false when that is not possible now
     */
    boolean remove(ScanPage page, BitSet expired) throws IOException, InterruptedException {
        EntryBatch rows = page.rows();
        EntryBatch removals = new EntryBatch(expired.cardinality());
        for (int i = expired.nextSetBit(0); i >= 0; i = expired.nextSetBit(i + 1)) {
            if (!state.cache().mayKnowMore(address(rows, i), rows, i)) {
                removals.add(
                        state.wireIndex(),
                        rows.group(i),
                        EntryBatch.OP_DELETE,
                        rows.keyData(),
                        rows.keyOffset(i),
                        rows.keyLength(i),
                        NOTHING,
                        0,
                        0);
            }
        }
        return state.context().writeBehind().sendUncached(removals);
    }

    private Address<K, N> address(EntryBatch rows, int i) throws IOException {
        RowCodec<K, N> codec = state.codec(true);
        DataInputDeserializer in =
                codec.input(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
        K key = codec.readKey(in);
        return new Address<>(key, codec.readNamespace(in));
    }
}
