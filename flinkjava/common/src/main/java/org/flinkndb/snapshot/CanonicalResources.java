package org.flinkndb.snapshot;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.runtime.state.FullSnapshotResources;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyValueStateIterator;
import org.apache.flink.runtime.state.RegisteredKeyValueStateBackendMetaInfo;
import org.apache.flink.runtime.state.StreamCompressionDecorator;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.flinkndb.backend.BackendCore;
import org.flinkndb.canonical.CanonicalRows;
import org.flinkndb.client.SnapshotKind;
import org.flinkndb.client.StateName;

import java.io.IOException;
import java.util.List;

/**
 * What Flink writes a canonical savepoint from: a snapshot that is taken for it, read back from the
 * server while the job goes on, and released afterwards.
 */
public final class CanonicalResources<K> implements FullSnapshotResources<K> {
    private final BackendCore<K> core;
    private final PendingSnapshot pending;
    private final List<StateMetaInfoSnapshot> metaInfos;
    private final List<StateName> states;
    private final List<RegisteredKeyValueStateBackendMetaInfo<?, ?>> keyValueStates;
    private final StreamCompressionDecorator compression;

    public CanonicalResources(BackendCore<K> core, StreamCompressionDecorator compression)
            throws IOException {
        this.core = core;
        this.compression = compression;
        this.metaInfos = core.metaInfoSnapshots();
        this.states = core.schema().states();
        this.keyValueStates = core.keyValueMetaInfos();
        this.pending = NdbSnapshotStrategy.begin(core, -1, SnapshotKind.EXPORT);
    }

    @Override
    public List<StateMetaInfoSnapshot> getMetaInfoSnapshots() {
        return metaInfos;
    }

    @Override
    public KeyValueStateIterator createKVStateIterator() throws IOException {
        try {
            core.session().await(pending.taken());
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IOException("Interrupted while a savepoint was taken.", e);
        }
        CanonicalRows rows = openRows();
        try {
            return new CanonicalIterator(rows, keyValueStates);
        } catch (Throwable e) { // it reads the first row; Flink has nothing to close yet
            rows.close();
            throw e;
        }
    }

    private CanonicalRows openRows() throws IOException {
        KeyGroupRange range = core.keyGroupRange();
        return new CanonicalRows(
                pending.client()
                        .read(pending.id(), range.getStartKeyGroup(), range.getEndKeyGroup()),
                states,
                core.numberOfKeyGroups());
    }

    @Override
    public KeyGroupRange getKeyGroupRange() {
        return core.keyGroupRange();
    }

    @Override
    public TypeSerializer<K> getKeySerializer() {
        return core.keySerializer();
    }

    @Override
    public StreamCompressionDecorator getStreamCompressionDecorator() {
        return compression;
    }

    @Override
    public void release() {
        pending.release();
    }
}
