package org.flinkndb.backend;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.Keyed;
import org.apache.flink.runtime.state.PriorityComparable;
import org.apache.flink.runtime.state.RegisteredPriorityQueueStateBackendMetaInfo;
import org.apache.flink.util.FlinkRuntimeException;
import org.apache.flink.util.StateMigrationException;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanPage;
import org.flinkndb.client.ScanRequest;
import org.flinkndb.client.StateKind;
import org.flinkndb.timer.NdbTimerQueue;

import java.io.IOException;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/** The timer queues of a backend by name, and what is known of restored ones. Task thread. */
final class TimerRegistry {
    private final BackendCore<?> core;
    private final Map<String, RegisteredPriorityQueueStateBackendMetaInfo<?>> metaInfos =
            new LinkedHashMap<>();
    private final Map<String, NdbTimerQueue<?>> queues = new LinkedHashMap<>();

    TimerRegistry(BackendCore<?> core) {
        this.core = core;
    }

    /** Takes a queue over from a restored snapshot. */
    void restored(RegisteredPriorityQueueStateBackendMetaInfo<?> metaInfo) {
        metaInfos.putIfAbsent(metaInfo.getName(), metaInfo);
    }

    Collection<RegisteredPriorityQueueStateBackendMetaInfo<?>> metaInfos() {
        return metaInfos.values();
    }

    @SuppressWarnings("unchecked")
    <T extends PriorityComparable<? super T> & Keyed<?>> NdbTimerQueue<T> createOrUpdate(
            String name, TypeSerializer<T> serializer) {
        RegisteredPriorityQueueStateBackendMetaInfo<T> metaInfo =
                (RegisteredPriorityQueueStateBackendMetaInfo<T>) metaInfos.get(name);
        boolean known = metaInfo != null;
        if (known) {
            update(name, metaInfo, serializer);
        } else {
            metaInfo = new RegisteredPriorityQueueStateBackendMetaInfo<>(name, serializer);
            metaInfos.put(name, metaInfo);
            core.schemaChanged();
        }
        NdbTimerQueue<T> queue = (NdbTimerQueue<T>) queues.get(name);
        if (queue == null) {
            queue =
                    new NdbTimerQueue<>(
                            core.session(),
                            core.writeBehind(),
                            core.session().registerState(name, StateKind.TIMER),
                            core.keyGroupRange().getStartKeyGroup(),
                            core.keyGroupRange().getEndKeyGroup(),
                            core.numberOfKeyGroups(),
                            metaInfo.getElementSerializer(),
                            !known,
                            core.firingTimers());
            queues.put(name, queue);
        }
        return queue;
    }

    private <T> void update(
            String name,
            RegisteredPriorityQueueStateBackendMetaInfo<T> metaInfo,
            TypeSerializer<T> serializer) {
        TypeSerializer<T> before = metaInfo.getElementSerializer();
        TypeSerializerSchemaCompatibility<T> compatibility =
                metaInfo.updateElementSerializer(serializer);
        if (compatibility.isIncompatible()) {
            throw new FlinkRuntimeException(
                    new StateMigrationException(
                            "The new priority queue serializer ("
                                    + serializer
                                    + ") must be compatible with"
                                    + " the one before ("
                                    + before
                                    + ")."));
        }
        if (compatibility.isCompatibleAfterMigration()) {
            try {
                rewrite(name, before, metaInfo.getElementSerializer());
            } catch (IOException e) {
                throw new FlinkRuntimeException("Cannot migrate the timers of " + name, e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new FlinkRuntimeException("Interrupted while migrating timers.", e);
            }
        }
        core.schemaChanged();
    }

    /** Rewrites all timers: their serialized form is their key. */
    private <T> void rewrite(String name, TypeSerializer<T> from, TypeSerializer<T> to)
            throws IOException, InterruptedException {
        core.writeBehind().flush();
        int index = core.session().registerState(name, StateKind.TIMER);
        ScanRequest request =
                ScanRequest.byGroup(
                                index,
                                core.keyGroupRange().getStartKeyGroup(),
                                core.keyGroupRange().getEndKeyGroup())
                        .withKeysOnly();
        DataInputDeserializer in = new DataInputDeserializer();
        DataOutputSerializer out = new DataOutputSerializer(64);
        EntryBatch deletes = new EntryBatch();
        EntryBatch puts = new EntryBatch();
        ScanPage page;
        do {
            page = core.session().await(core.session().scan(request));
            EntryBatch rows = page.rows();
            for (int i = 0; i < rows.size(); i++) {
                in.setBuffer(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
                out.clear();
                to.serialize(from.deserialize(in), out);
                deletes.add(index, rows.group(i), EntryBatch.OP_DELETE, rows.key(i));
                puts.add(index, rows.group(i), EntryBatch.OP_PUT, out.getCopyOfBuffer());
            }
            if (!rows.isEmpty()) {
                request = request.after(rows.group(rows.size() - 1), rows.key(rows.size() - 1));
            }
        } while (!page.done() && !page.rows().isEmpty());
        deletes.addAll(puts);
        core.writeAll(deletes);
    }
}
