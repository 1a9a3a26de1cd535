package org.flinkndb.snapshot;

import org.apache.flink.runtime.state.CompositeKeySerializationUtils;
import org.apache.flink.runtime.state.KeyValueStateIterator;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.SnapshotClient;
import org.flinkndb.state.RowTransformer;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The rows of a snapshot in the order and form of Flink's canonical savepoints. For one thread. */
final class CanonicalIterator implements KeyValueStateIterator {
    private static final int UNKNOWN = -1;

    private final SnapshotClient.Rows rows;
    private final int prefixBytes;
    private final int[] kvStateIds;
    private final RowTransformer[] transformers;

    private EntryBatch batch = new EntryBatch(1);
    private int at = -1;
    private int keyGroup = UNKNOWN;
    private int kvStateId = UNKNOWN;
    private boolean newKeyGroup;
    private boolean newKvState;
    private boolean valid;
    private byte[] value;

    CanonicalIterator(
            SnapshotClient.Rows rows,
            List<StateMetaInfoSnapshot> metaInfos,
            List<RegisteredKeyValueStateBackendMetaInfo<?, ?>> keyValueStates,
            int keyGroups)
            throws IOException {
        this.rows = rows;
        this.prefixBytes =
                CompositeKeySerializationUtils.computeRequiredBytesInKeyGroupPrefix(keyGroups);
        this.kvStateIds = kvStateIds(rows.states(), metaInfos);
        this.transformers = new RowTransformer[metaInfos.size()];
        for (int i = 0; i < keyValueStates.size(); i++) {
            transformers[i] = RowTransformer.of(keyValueStates.get(i));
        }
        next();
    }

    /** For each state of the snapshot its place among the meta infos; UNKNOWN if Flink has none. */
    private static int[] kvStateIds(
            List<SnapshotClient.State> states, List<StateMetaInfoSnapshot> metaInfos) {
        Map<List<Object>, Integer> ids = new HashMap<>();
        for (int i = 0; i < metaInfos.size(); i++) {
            boolean timer =
                    metaInfos.get(i).getBackendStateType()
                            == StateMetaInfoSnapshot.BackendStateType.PRIORITY_QUEUE;
            ids.put(nameOf(metaInfos.get(i).getName(), timer), i);
        }
        int[] kvStateIds = new int[states.size()];
        for (int i = 0; i < kvStateIds.length; i++) {
            SnapshotClient.State state = states.get(i);
            kvStateIds[i] = ids.getOrDefault(nameOf(state.name(), state.timer()), UNKNOWN);
        }
        return kvStateIds;
    }

    private static List<Object> nameOf(String name, boolean timer) {
        List<Object> key = new ArrayList<>(2);
        key.add(name);
        key.add(timer);
        return key;
    }

    @Override
    public void next() throws IOException {
        while (true) {
            at++;
            while (at >= batch.size()) {
                batch = rows.next();
                at = 0;
                if (batch == null) {
                    valid = false;
                    return;
                }
            }
            int id = kvStateIds[batch.state(at)];
            if (id == UNKNOWN) {
                continue;
            }
            byte[] bytes = batch.value(at);
            value = transformers[id] == null ? bytes : transformers[id].apply(bytes);
            if (value != null) {
                moveTo(batch.group(at), id);
                return;
            }
        }
    }

    private void moveTo(int group, int id) {
        newKeyGroup = group != keyGroup;
        newKvState = newKeyGroup || id != kvStateId;
        keyGroup = group;
        kvStateId = id;
        valid = true;
    }

    @Override
    public int keyGroup() {
        return keyGroup;
    }

    /** A fresh array each time: Flink changes it. */
    @Override
    public byte[] key() {
        int length = batch.keyLength(at);
        byte[] key = new byte[prefixBytes + length];
        for (int i = 0; i < prefixBytes; i++) {
            key[i] = (byte) (keyGroup >>> (8 * (prefixBytes - 1 - i)));
        }
        System.arraycopy(batch.keyData(), batch.keyOffset(at), key, prefixBytes, length);
        return key;
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
        return valid;
    }

    @Override
    public void close() {
        rows.close();
    }
}
