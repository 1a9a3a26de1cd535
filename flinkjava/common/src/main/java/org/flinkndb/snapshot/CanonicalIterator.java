package org.flinkndb.snapshot;

import org.apache.flink.runtime.state.KeyValueStateIterator;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.flinkndb.canonical.CanonicalRows;
import org.flinkndb.state.RowTransformer;

import java.io.IOException;
import java.util.List;

/** The rows of a snapshot as Flink writes them into a canonical savepoint. For one thread. */
final class CanonicalIterator implements KeyValueStateIterator {
    private static final int NONE = -1;

    private final CanonicalRows rows;
    private final RowTransformer[] transformers;

    private int keyGroup = NONE;
    private int kvStateId = NONE;
    private boolean newKeyGroup;
    private boolean newKvState;
    private byte[] value;

    /**
     * @param keyValueStates the first ones of the states that {@code rows} numbers
     */
    CanonicalIterator(
            CanonicalRows rows, List<RegisteredKeyValueStateBackendMetaInfo<?, ?>> keyValueStates)
            throws IOException {
        this.rows = rows;
        this.transformers = new RowTransformer[keyValueStates.size()];
        for (int i = 0; i < transformers.length; i++) {
            transformers[i] = RowTransformer.of(keyValueStates.get(i));
        }
        next();
    }

    @Override
    public void next() throws IOException {
        while (rows.next()) {
            int id = rows.kvStateId();
            boolean plain = id >= transformers.length || transformers[id] == null;
            value = plain ? rows.value() : transformers[id].apply(rows.value());
            if (value != null) {
                newKeyGroup = rows.keyGroup() != keyGroup;
                newKvState = newKeyGroup || id != kvStateId;
                keyGroup = rows.keyGroup();
                kvStateId = id;
                return;
            }
        }
    }

    @Override
    public int keyGroup() {
        return keyGroup;
    }

    @Override
    public byte[] key() {
        return rows.key();
    }

    @Override
    public byte[] value() {
        return value;
    }

    @Override
    public int kvStateId() {
        return kvStateId;
    }

    @Override
    public boolean isNewKeyValueState() {
        return newKvState;
    }

    @Override
    public boolean isNewKeyGroup() {
        return newKeyGroup;
    }

    @Override
    public boolean isValid() {
        return rows.isValid();
    }

    @Override
    public void close() {
        rows.close();
    }
}
