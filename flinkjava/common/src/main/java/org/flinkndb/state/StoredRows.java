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
final class StoredRows<K, N, V> implements CleanupScan.Source<K, N, V> {
    private static final int PAGE_ROWS = 1024;
    private static final byte[] NOTHING = new byte[0];

    private final AbstractNdbState<K, N, V> state;

    StoredRows(AbstractNdbState<K, N, V> state) {
        this.state = state;
    }

    private StateSession session() {
        return state.context().session();
    }

    @Override
    public boolean mayHaveUncached() {
        return state.cache().mayHaveUncached();
    }

    @Override
    public CompletableFuture<ScanPage> ask(int afterGroup, byte[] afterKey) {
        state.cache().watchRemovals();
        ScanRequest request =
                ScanRequest.byGroup(
                                state.wireIndex(),
                                state.context().keyGroupRange().getStartKeyGroup(),
                                state.context().keyGroupRange().getEndKeyGroup())
                        .withLimit(Math.min(PAGE_ROWS, session().limits().maxBatchRows()));
        return session().scan(afterKey == null ? request : request.after(afterGroup, afterKey));
    }

    @Override
    public <X> X await(CompletableFuture<X> answered) throws IOException, InterruptedException {
        return session().await(answered);
    }

    @Override
    public StoredRow<K, N, V> row(ScanPage page, int i) throws IOException, InterruptedException {
        EntryBatch rows = page.rows();
        DataInputDeserializer in = startOf(rows, i);
        K key = state.codec(true).readKey(in);
        N namespace = state.codec(true).readNamespace(in);
        if (state.cache().mayKnowMore(key, namespace, rows, i)) {
            return null;
        }
        AbstractNdbState.ValueBytes bytes = state.filtered(rows, i);
        V value = bytes == null ? null : state.valueOfRow(rows, i, bytes);
        if (value != null && !bytes.asStored) {
            state.retainAt(
                    key, namespace, rows.group(i), value); // Flink sees nothing to be removed
            return null;
        }
        return new StoredRow<>(key, namespace, value, rows.group(i), i);
    }

    @Override
    public void retain(StoredRow<K, N, V> row, V value) throws IOException, InterruptedException {
        state.retainRow(row, value);
    }

    @Override
    public boolean isNothing(V value) {
        return state.isNothing(value);
    }

    @Override
    public void done() {
        state.cache().endWatch();
    }

    @Override
    public boolean remove(ScanPage page, BitSet expired) throws IOException, InterruptedException {
        EntryBatch rows = page.rows();
        EntryBatch removals = new EntryBatch(expired.cardinality());
        for (int i = expired.nextSetBit(0); i >= 0; i = expired.nextSetBit(i + 1)) {
            if (!mayBeKnown(rows, i)) {
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

    private boolean mayBeKnown(EntryBatch rows, int i) throws IOException {
        DataInputDeserializer in = startOf(rows, i);
        K key = state.codec(true).readKey(in);
        return state.cache().mayKnowMore(key, state.codec(true).readNamespace(in), rows, i);
    }

    private DataInputDeserializer startOf(EntryBatch rows, int i) {
        return state.codec(true).input(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
    }
}
