package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.flinkndb.cache.WriteSink;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanPage;
import org.flinkndb.client.ScanRequest;
import org.flinkndb.client.StateAccess;

import java.io.IOException;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** The cache of a map state. Setting and removing never read. */
final class MapCache<K, N, UK, UV> extends StoredCache<K, N, MapEntry<K, N, UK, UV>> {
    /** Maps up to this size are kept whole after they were iterated over. */
    static final int KEEP_ROWS = 4096;

    /** Removing up to so many known rows one by one spares the server a scan. */
    private static final int CLEAR_ROW_BY_ROW = 32;

    /** A look-up in a map of which nothing is known reads up to so many rows. */
    private static final int SMALL_MAP_ROWS = 64;

    private static final byte[] NOTHING = new byte[0];
    private static final int SLOT_BYTES = 80;

    private final NdbMapState<K, N, UK, UV> state;
    private final SizeEstimate sizes = new SizeEstimate();
    private MapKeys<UK> mapKeys;
    private TypeSerializer<UK> keySerializer;
    private TypeSerializer<UV> valueSerializer;
    private volatile TypeSerializer<UK> flusherKeySerializer;
    private volatile TypeSerializer<UV> flusherValueSerializer;
    private boolean immutable;
    private long pagesOfMaps;
    private long smallMaps;

    MapCache(NdbMapState<K, N, UK, UV> state, boolean storeUnknown) {
        super(state, storeUnknown);
        this.state = state;
        reconfigure();
    }

    void reconfigure() {
        keySerializer = state.userKeySerializer();
        valueSerializer = state.userValueSerializer();
        flusherKeySerializer = keySerializer.duplicate();
        flusherValueSerializer = valueSerializer.duplicate();
        immutable = valueSerializer.isImmutableType();
        mapKeys = new MapKeys<>(keySerializer);
        StateAccess.run(this::findAgain);
    }

    /** Sorts the slots in anew, since another serializer may find them by something else. */
    private void findAgain() throws IOException {
        List<MapEntry<K, N, UK, UV>> entries = new ArrayList<>();
        forEach(entries::add);
        for (MapEntry<K, N, UK, UV> entry : entries) {
            synchronized (entry) { // queries look at the slots
                List<MapEntry.Slot<UK, UV>> slots = new ArrayList<>(entry.slots.values());
                entry.slots.clear();
                for (MapEntry.Slot<UK, UV> slot : slots) {
                    entry.slots.put(mapKeys.of(slot.key), slot);
                }
            }
        }
    }

    /** The entry of a map, which is made if needed. */
    MapEntry<K, N, UK, UV> entry(K key, N namespace, int group)
            throws IOException, InterruptedException {
        makeRoom();
        int hash = hash(key, namespace);
        MapEntry<K, N, UK, UV> entry = findOrLoad(key, namespace, hash);
        if (entry == null) {
            entry = new MapEntry<>(keep(key), keepNamespace(namespace), hash, group);
            entry.complete = knownAbsent(hash);
            insert(entry, sizes.heap(0));
        }
        return entry;
    }

    /** What is known of a map key, which is read if needed. The value may be handed out. */
    MapEntry.Slot<UK, UV> slot(MapEntry<K, N, UK, UV> entry, UK userKey)
            throws IOException, InterruptedException {
        Object at = mapKeys.of(userKey);
        MapEntry.Slot<UK, UV> slot = entry.slots.get(at);
        if (slot == null && !entry.complete && entry.slots.isEmpty() && mapsAreSmall()) {
            readSmallMap(entry);
            slot = entry.slots.get(at);
        }
        if (slot == null) {
            if (entry.complete) {
                return new MapEntry.Slot<>(userKey); // not worth to be remembered
            }
            slot = new MapEntry.Slot<>(keepUserKey(userKey));
            long serialized = read(entry, slot);
            addSlot(entry, at, slot, serialized);
            removeIfExpired(entry, slot);
        }
        if (!immutable) {
            touch(entry);
        }
        return slot;
    }

    /** Whether reading a page of a map has mostly brought all of it. */
    private boolean mapsAreSmall() {
        return smallMaps * 2 >= pagesOfMaps || pagesOfMaps < 16;
    }

    /**
     * Reads a page of rows instead of one, since the other map keys are likely to be asked for next,
     * and pages of the maps that timers will ask for next.
     */
    private void readSmallMap(MapEntry<K, N, UK, UV> entry)
            throws IOException, InterruptedException {
        long bytes = SMALL_MAP_ROWS * (sizes.serialized() + SLOT_BYTES);
        List<Address<K, N>> along = along(entry.key(), entry.namespace(), bytes);
        CompletableFuture<ScanPage> first =
                scanSmall(entry.key(), entry.namespace(), entry.group());
        List<CompletableFuture<ScanPage>> pages = new ArrayList<>(along.size());
        for (Address<K, N> at : along) {
            pages.add(scanSmall(at.key(), at.namespace(), state.groupOf(at.key())));
        }
        for (int i = 0; i < along.size(); i++) {
            takeInAlong(along.get(i), state.context().session().await(pages.get(i)));
        }
        ScanPage page = state.context().session().await(first);
        if (!isCached(entry)) {
            insert(entry, sizes.heap(0)); // those maps have evicted it
        }
        takeInPage(entry, page);
        pagesOfMaps++;
        smallMaps += page.done() ? 1 : 0;
    }

    private CompletableFuture<ScanPage> scanSmall(K key, N namespace, int group)
            throws IOException {
        return state.context()
                .session()
                .scan(request(key, namespace, group).withLimit(SMALL_MAP_ROWS));
    }

    private void takeInPage(MapEntry<K, N, UK, UV> entry, ScanPage page)
            throws IOException, InterruptedException {
        for (int i = 0; i < page.rows().size(); i++) {
            addStored(entry, page.rows(), i);
        }
        if (page.done()) {
            entry.complete = true;
        }
        if (page.rows().isEmpty()) {
            answeredAbsent();
        }
    }

    private void takeInAlong(Address<K, N> at, ScanPage page)
            throws IOException, InterruptedException {
        if (peek(at.key(), at.namespace()) == null) { // two timers may have the same
            int hash = hash(at.key(), at.namespace());
            MapEntry<K, N, UK, UV> entry =
                    new MapEntry<>(at.key(), at.namespace(), hash, state.groupOf(at.key()));
            insert(entry, sizes.heap(0));
            takeInPage(entry, page);
        }
    }

    /** The map key for a new slot, see {@link #keep}. */
    private UK keepUserKey(UK userKey) {
        return keySerializer.copy(userKey);
    }

    private void addSlot(
            MapEntry<K, N, UK, UV> entry, Object at, MapEntry.Slot<UK, UV> slot, long serialized)
            throws IOException {
        synchronized (entry) { // queries look at the slots
            entry.slots.put(mapKeys.kept(at, slot.key), slot);
        }
        long bytes = SLOT_BYTES + MapKeys.heapBytes(at) + sizes.heap(serialized);
        charge(entry, chargeOf(entry) + bytes);
    }

    private long read(MapEntry<K, N, UK, UV> entry, MapEntry.Slot<UK, UV> slot)
            throws IOException, InterruptedException {
        DataOutputSerializer key = state.codec(true).startKey(entry.key(), entry.namespace());
        keySerializer.serialize(slot.key, key);
        EntryBatch row = state.readRow(entry.group(), key.getSharedBuffer(), key.length());
        slot.absentInStore = row == null;
        if (row == null) {
            answeredAbsent();
        }
        AbstractNdbState.ValueBytes bytes = row == null ? null : state.filtered(row, 0);
        slot.present = bytes != null;
        if (bytes == null) {
            return 0;
        }
        slot.value = readValue(state.codec(true).input(bytes.data, bytes.offset, bytes.length));
        sizes.learnRead(row.valueLength(0), slot.value);
        return row.valueLength(0);
    }

    UV readValue(DataInputDeserializer in) throws IOException {
        return in.readBoolean() ? null : valueSerializer.deserialize(in);
    }

    void put(MapEntry<K, N, UK, UV> entry, UK userKey, UV value)
            throws IOException, InterruptedException {
        change(entry, userKey, value, true);
    }

    void remove(MapEntry<K, N, UK, UV> entry, UK userKey) throws IOException, InterruptedException {
        MapEntry.Slot<UK, UV> slot = entry.slots.get(mapKeys.of(userKey));
        boolean nothingThere = slot == null ? entry.complete : !slot.present && slot.absentInStore;
        if (!nothingThere) {
            change(entry, userKey, null, false);
        }
    }

    private void change(MapEntry<K, N, UK, UV> entry, UK userKey, UV value, boolean present)
            throws IOException, InterruptedException {
        touch(entry);
        long serialized = measure(value);
        Object at = mapKeys.of(userKey);
        MapEntry.Slot<UK, UV> slot = entry.slots.get(at);
        if (slot == null) {
            slot = new MapEntry.Slot<>(keepUserKey(userKey));
            slot.absentInStore = entry.complete;
            addSlot(entry, at, slot, serialized);
        }
        slot.value = value;
        slot.present = present;
        boolean newly = !slot.changed;
        if (newly) {
            slot.changed = true;
            entry.addChanged(slot);
        }
        long bytes = newly ? serialized + ROW_BYTES : 0;
        markDirty(entry, bytes, bytes);
    }

    private long measure(UV value) throws IOException {
        if (value == null) {
            return 1;
        }
        if (!sizes.wantsSample()) {
            return sizes.serialized();
        }
        DataOutputSerializer out = state.codec(true).startValue();
        state.serialize(valueSerializer, value, out);
        sizes.learnWritten(out.length(), value);
        return out.length();
    }

    void clear(MapEntry<K, N, UK, UV> entry) throws IOException, InterruptedException {
        if (entry.complete && entry.slots.isEmpty() && !entry.cleared) {
            return;
        }
        touch(entry);
        if (entry.complete && entry.slots.size() <= CLEAR_ROW_BY_ROW) {
            for (MapEntry.Slot<UK, UV> slot : new ArrayList<>(entry.slots.values())) {
                remove(entry, slot.key);
            }
            return;
        }
        synchronized (entry) {
            entry.slots.clear();
        }
        entry.takeChanged();
        entry.cleared = true;
        entry.complete = true;
        markDirty(entry, ROW_BYTES, ROW_BYTES);
        charge(entry, sizes.heap(0));
    }

    /**
     * Reads all rows of a map that is not complete, if it is not too large.
     *
     * @return whether the entry is complete now
     */
    boolean complete(MapEntry<K, N, UK, UV> entry) throws IOException, InterruptedException {
        if (entry.complete) {
            return true;
        }
        if (mayBeOnItsWay(entry)) {
            writeBehind().awaitSealed(); // what was taken from the slots must be in the store
        }
        RowScan rows = scan(entry);
        int seen = 0;
        while (rows.next()) {
            seen += rows.page().size();
            if (seen > KEEP_ROWS) {
                return false;
            }
            for (int i = 0; i < rows.page().size(); i++) {
                addStored(entry, rows.page(), i);
            }
        }
        entry.complete = true;
        return true;
    }

    /** Remembers a scanned row unless something newer is known. */
    private void addStored(MapEntry<K, N, UK, UV> entry, EntryBatch page, int i)
            throws IOException, InterruptedException {
        UK userKey = userKey(page, i);
        Object at = mapKeys.of(userKey);
        if (!entry.slots.containsKey(at)) {
            MapEntry.Slot<UK, UV> slot = new MapEntry.Slot<>(userKey);
            AbstractNdbState.ValueBytes bytes = state.filtered(page, i);
            slot.present = bytes != null;
            if (bytes != null) {
                slot.value =
                        readValue(state.codec(true).input(bytes.data, bytes.offset, bytes.length));
            }
            sizes.learnRead(page.valueLength(i), slot.value);
            addSlot(entry, at, slot, page.valueLength(i));
            removeIfExpired(entry, slot);
        }
    }

    /** Removes a row that was just read, if the filter keeps Flink from seeing, and removing, it. */
    private void removeIfExpired(MapEntry<K, N, UK, UV> entry, MapEntry.Slot<UK, UV> slot)
            throws IOException, InterruptedException {
        if (!slot.present && !slot.absentInStore) {
            touch(entry);
            slot.changed = true;
            entry.addChanged(slot);
            markDirty(entry, ROW_BYTES, ROW_BYTES);
        }
    }

    @Override
    void takeInRow(K key, N namespace, EntryBatch page, int i)
            throws IOException, InterruptedException {
        MapEntry<K, N, UK, UV> entry = peek(key, namespace);
        if (entry == null) {
            entry = new MapEntry<>(key, namespace, hash(key, namespace), page.group(i));
            insert(entry, sizes.heap(0));
        }
        if (!entry.complete) {
            addStored(entry, page, i);
        }
    }

    @Override
    void allRowsCached() {
        super.allRowsCached();
        forEach(entry -> entry.complete = true);
    }

    /** The entry that is cached now of the same map, which is made if needed. */
    MapEntry<K, N, UK, UV> cachedNow(MapEntry<K, N, UK, UV> entry)
            throws IOException, InterruptedException {
        return entry(entry.key(), entry.namespace(), entry.group());
    }

    /**
     * Caches a scanned row of a large map unless it may be older than what the task did since the page
     * was requested. As long as the entry was not evicted, all that the task changed has a slot, or
     * the map was cleared and is complete.
     *
     * @param then the entry that was cached when the page was requested
     * @return the map key
     */
    UK remember(MapEntry<K, N, UK, UV> then, EntryBatch page, int i)
            throws IOException, InterruptedException {
        if (cachedNow(then) == then && !then.complete) {
            addStored(then, page, i);
        }
        return userKey(page, i);
    }

    /** All rows of a map, as the store has them. */
    RowScan scan(MapEntry<K, N, UK, UV> entry) throws IOException {
        return new RowScan(
                state.context().session(), request(entry.key(), entry.namespace(), entry.group()));
    }

    private ScanRequest request(K key, N namespace, int group) throws IOException {
        byte[] prefix = state.codec(true).keyBytes(key, namespace);
        return ScanRequest.byGroup(state.wireIndex(), group, group).withPrefix(prefix);
    }

    UK userKey(EntryBatch page, int i) throws IOException {
        RowCodec<K, N> codec = state.codec(true);
        DataInputDeserializer in =
                codec.input(page.keyData(), page.keyOffset(i), page.keyLength(i));
        codec.readKey(in);
        codec.readNamespace(in);
        return keySerializer.deserialize(in);
    }

    /**
     * The entries that are cached of a map, each as a map: together, keys that are equal but differ in
     * their bytes would be one. For a look that is no use of them. Task thread.
     */
    List<Map<UK, UV>> cachedAt(K key, N namespace) {
        MapEntry<K, N, UK, UV> entry = peek(key, namespace);
        if (entry == null) {
            return List.of();
        }
        List<Map<UK, UV>> entries = new ArrayList<>(entry.slots.size());
        for (MapEntry.Slot<UK, UV> slot : entry.slots.values()) {
            if (slot.present) {
                entries.add(Collections.singletonMap(slot.key, slot.value));
            }
        }
        return entries;
    }

    @Override
    boolean hasValue(MapEntry<K, N, UK, UV> entry) {
        return !entry.slots.isEmpty();
    }

    @Override
    boolean holds(Address<K, N> at, EntryBatch page, int i) throws IOException {
        MapEntry<K, N, UK, UV> entry = peek(at.key(), at.namespace());
        return entry != null
                && (entry.complete || entry.slots.containsKey(mapKeys.of(userKey(page, i))));
    }

    @Override
    protected boolean mayBeStored(MapEntry<K, N, UK, UV> entry) {
        if (!entry.complete) {
            return true;
        }
        for (MapEntry.Slot<UK, UV> slot : entry.slots.values()) {
            if (!slot.absentInStore) {
                return true;
            }
        }
        return false;
    }

    @Override
    protected void write(MapEntry<K, N, UK, UV> entry, WriteSink sink, boolean byTask)
            throws IOException, InterruptedException {
        RowCodec<K, N> codec = state.codec(byTask);
        DataOutputSerializer key = codec.startKey(entry.key(), entry.namespace());
        int prefixLength = key.length();
        if (entry.cleared) {
            sink.add(
                    state.wireIndex(),
                    entry.group(),
                    EntryBatch.OP_DELETE_PREFIX,
                    key.getSharedBuffer(),
                    0,
                    prefixLength,
                    NOTHING,
                    0,
                    0);
            entry.cleared = false;
        }
        for (MapEntry.Slot<UK, UV> slot : entry.takeChanged()) {
            key.setPosition(prefixLength);
            writeSlot(entry, slot, codec, sink, byTask);
            slot.changed = false;
            slot.absentInStore = !slot.present;
        }
        if (byTask) {
            dropAbsent(entry);
        }
    }

    /** In a complete map, keys without a row need no slot. Not for the flusher: the task may look. */
    private void dropAbsent(MapEntry<K, N, UK, UV> entry) {
        if (entry.complete) {
            synchronized (entry) {
                entry.slots
                        .values()
                        .removeIf(slot -> !slot.present && !slot.changed && slot.absentInStore);
            }
        }
    }

    private void writeSlot(
            MapEntry<K, N, UK, UV> entry,
            MapEntry.Slot<UK, UV> slot,
            RowCodec<K, N> codec,
            WriteSink sink,
            boolean byTask)
            throws IOException, InterruptedException {
        if (!slot.present && slot.absentInStore) {
            return; // came and went between two flushes
        }
        DataOutputSerializer key = codec.key();
        (byTask ? keySerializer : flusherKeySerializer).serialize(slot.key, key);
        DataOutputSerializer out = codec.startValue();
        if (slot.present) {
            out.writeBoolean(slot.value == null);
            if (slot.value != null) {
                state.serialize(byTask ? valueSerializer : flusherValueSerializer, slot.value, out);
            }
        }
        sink.add(
                state.wireIndex(),
                entry.group(),
                slot.present ? EntryBatch.OP_PUT : EntryBatch.OP_DELETE,
                key.getSharedBuffer(),
                0,
                key.length(),
                out.getSharedBuffer(),
                0,
                out.length());
    }

    /** The present slots of an entry that is not null, or null if it is not complete. Any thread. */
    List<Map.Entry<UK, UV>> snapshotForQuery(K key, N namespace) {
        MapEntry<K, N, UK, UV> entry = peek(key, namespace);
        if (entry == null) {
            return null;
        }
        synchronized (entry) {
            if (!entry.complete) {
                return null;
            }
            List<Map.Entry<UK, UV>> present = new ArrayList<>();
            entry.slots.forEach(
                    (at, slot) -> {
                        if (slot.present) {
                            present.add(new AbstractMap.SimpleEntry<>(slot.key, slot.value));
                        }
                    });
            return present;
        }
    }
}
