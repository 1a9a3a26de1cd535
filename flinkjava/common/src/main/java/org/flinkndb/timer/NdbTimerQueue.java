package org.flinkndb.timer;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.KeyGroupedInternalPriorityQueue;
import org.apache.flink.runtime.state.Keyed;
import org.apache.flink.runtime.state.PriorityComparable;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.FlinkRuntimeException;
import org.flinkndb.cache.DirtySource;
import org.flinkndb.cache.WriteBehind;
import org.flinkndb.cache.WriteSink;
import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanPage;
import org.flinkndb.client.ScanRequest;
import org.flinkndb.client.StateAccess;
import org.flinkndb.client.StateSession;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * A timer queue of which the next timers are in memory and the others in the store only.
 *
 * <p>Timers are rows whose key is the serialized timer, which for Flink's own timers orders as they do
 * (elements with another serializer are all loaded at the first look). All timers up to the <i>horizon</i> are in memory; when they have fired, the
 * next page is fetched in order over all key groups. A queue that started empty has no horizon until
 * it outgrows its memory; a restored one starts with nothing in memory, so restoring reads nothing.
 * For the task thread.
 */
public final class NdbTimerQueue<T extends PriorityComparable<? super T> & Keyed<?>>
        implements KeyGroupedInternalPriorityQueue<T>, DirtySource {
    /** Timers in memory above which the later half is left to the store. */
    private static final int MAX_IN_MEMORY = 1 << 18;

    private static final int FETCH_ROWS = 2048;
    private static final int ROW_BYTES = 64;
    private static final byte[] NOTHING = new byte[0];

    private final StateSession session;
    private final WriteBehind writeBehind;
    private final int wireIndex;
    private final int firstGroup;
    private final int lastGroup;
    private final int keyGroups;
    private final DataOutputSerializer out = new DataOutputSerializer(64);
    private final DataInputDeserializer in = new DataInputDeserializer();
    private final TypeSerializer<T> serializer;

    /** Whether timers order as their serialized forms do: Flink's own timers, and the store's order. */
    private final boolean byteOrdered;

    /** Whether a caller may go on to change the key or namespace of a timer that was added. */
    private final boolean mutable;

    private final FiringTimers firing;

    private final TreeMap<Timer<T>, T> timers;

    /** The last timer that memory covers; null with complete = false: it covers none. */
    private byte[] horizon;

    private int horizonGroup;
    private boolean complete;

    /** Changes of the current epoch by serialized timer. */
    private Map<Key, Change> changes = new HashMap<>();

    public NdbTimerQueue(
            StateSession session,
            WriteBehind writeBehind,
            int wireIndex,
            int firstGroup,
            int lastGroup,
            int keyGroups,
            TypeSerializer<T> serializer,
            boolean knownEmpty,
            FiringTimers firing) {
        this.session = session;
        this.writeBehind = writeBehind;
        this.wireIndex = wireIndex;
        this.firstGroup = firstGroup;
        this.lastGroup = lastGroup;
        this.keyGroups = keyGroups;
        this.serializer = serializer;
        this.complete = knownEmpty;
        this.firing = firing;
        this.byteOrdered = serializer instanceof TimerSerializer;
        this.mutable = !serializer.isImmutableType();
        this.timers = new TreeMap<>(byteOrdered ? NdbTimerQueue::compareBytes : this::compare);
        writeBehind.register(this);
    }

    /** A serialized timer, as a map key. */
    private static final class Key {
        private final byte[] bytes;

        private Key(byte[] bytes) {
            this.bytes = bytes;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Key && Arrays.equals(bytes, ((Key) other).bytes);
        }

        @Override
        public int hashCode() {
            return Arrays.hashCode(bytes);
        }
    }

    /** A change that has not been sent. */
    private static final class Change {
        private final int group;
        private boolean add;

        /** Whether the store is known not to have the timer, as of what was sent. */
        private final boolean absentInStore;

        private Change(int group, boolean add, boolean absentInStore) {
            this.group = group;
            this.add = add;
            this.absentInStore = absentInStore;
        }
    }

    /** A timer with its serialized form and its key group. */
    private static final class Timer<T> {
        private final byte[] bytes;
        private final T element;
        private final int group;

        private Timer(byte[] bytes, T element, int group) {
            this.bytes = bytes;
            this.element = element;
            this.group = group;
        }
    }

    private static int compareBytes(Timer<?> left, Timer<?> right) {
        return Arrays.compareUnsigned(left.bytes, right.bytes);
    }

    private int compare(Timer<T> left, Timer<T> right) {
        int order = left.element.comparePriorityTo(right.element);
        return order != 0 ? order : compareBytes(left, right);
    }

    // ---------------------------------------------------------------------------------- the queue

    @Override
    public T peek() {
        fetchIfNeeded();
        Map.Entry<Timer<T>, T> first = timers.firstEntry();
        return first == null ? null : first.getValue();
    }

    @Override
    public T poll() {
        fetchIfNeeded();
        Map.Entry<Timer<T>, T> first = timers.pollFirstEntry();
        if (first == null) {
            return null;
        }
        noteRemoved(first.getKey().bytes, first.getKey().group);
        firing.polled(this, first.getValue());
        return first.getValue();
    }

    /** The first timers in memory that are due at a time, as many as wanted at most. */
    List<InternalTimer<?, ?>> timersUntil(long millis, int limit) {
        List<InternalTimer<?, ?>> due = new ArrayList<>(limit);
        for (T element : timers.values()) {
            InternalTimer<?, ?> timer = (InternalTimer<?, ?>) element;
            if (due.size() == limit || timer.getTimestamp() > millis) {
                break;
            }
            due.add(timer);
        }
        return due;
    }

    @Override
    public boolean add(T timer) {
        byte[] bytes = serialize(timer);
        int group = group(timer);
        if (!covers(bytes, group)) {
            noteAdded(bytes, group, false);
            return timers.isEmpty();
        }
        if (mutable && timers.containsKey(new Timer<>(bytes, timer, group))) {
            return false; // most are set again and again: not worth a copy
        }
        T kept = keep(timer);
        if (timers.putIfAbsent(new Timer<>(bytes, kept, group), kept) != null) {
            return false;
        }
        noteAdded(bytes, group, true);
        boolean newHead = timers.firstEntry().getValue() == kept;
        if (byteOrdered && timers.size() > MAX_IN_MEMORY) {
            leaveHalfToStore();
        }
        return newHead;
    }

    @Override
    public boolean remove(T timer) {
        byte[] bytes = serialize(timer);
        int group = group(timer);
        if (!covers(bytes, group)) {
            noteRemoved(bytes, group);
            return false;
        }
        boolean wasHead = !timers.isEmpty() && Arrays.equals(timers.firstKey().bytes, bytes);
        if (timers.remove(new Timer<>(bytes, timer, group)) != null) {
            noteRemoved(bytes, group);
        }
        return wasHead;
    }

    @Override
    public void addAll(Collection<? extends T> more) {
        if (more != null) {
            more.forEach(this::add);
        }
    }

    @Override
    public boolean isEmpty() {
        return peek() == null;
    }

    @Override
    public int size() {
        if (complete) {
            return timers.size();
        }
        return StateAccess.get(
                () -> {
                    writeBehind.flush();
                    return Math.toIntExact(
                            session.await(session.count(wireIndex, firstGroup, lastGroup)));
                });
    }

    @Override
    public CloseableIterator<T> iterator() {
        return CloseableIterator.adapterForIterator(all(firstGroup, lastGroup).iterator());
    }

    @Override
    public Set<T> getSubsetForKeyGroup(int keyGroup) {
        return new HashSet<>(all(keyGroup, keyGroup));
    }

    private List<T> all(int first, int last) {
        if (!complete) {
            return StateAccess.get(() -> scanAll(first, last));
        }
        List<T> list = new ArrayList<>();
        for (Timer<T> timer : timers.keySet()) {
            if (timer.group >= first && timer.group <= last) {
                list.add(timer.element);
            }
        }
        return list;
    }

    private List<T> scanAll(int first, int last) throws IOException, InterruptedException {
        writeBehind.flush();
        List<T> list = new ArrayList<>();
        ScanRequest request = ScanRequest.byKey(wireIndex, first, last).withKeysOnly();
        while (true) {
            ScanPage page = session.await(session.scan(request));
            EntryBatch rows = page.rows();
            for (int i = 0; i < rows.size(); i++) {
                list.add(deserialize(rows, i));
            }
            if (page.done() || rows.isEmpty()) {
                return list;
            }
            request = request.after(rows.group(rows.size() - 1), rows.key(rows.size() - 1));
        }
    }

    // -------------------------------------------------------------------------------- the horizon

    /** Whether a timer, if it exists, is in memory. */
    private boolean covers(byte[] bytes, int group) {
        if (complete) {
            return true;
        }
        if (horizon == null) {
            return false;
        }
        int order = Arrays.compareUnsigned(bytes, horizon);
        return order < 0 || order == 0 && group <= horizonGroup;
    }

    private void fetchIfNeeded() {
        while (!complete && (timers.isEmpty() || !byteOrdered)) {
            StateAccess.run(this::fetch);
        }
    }

    /** Fetches the next timers after the horizon. */
    private void fetch() throws IOException, InterruptedException {
        writeBehind.flush(); // what was added or removed beyond the horizon must be in the store
        ScanRequest request =
                ScanRequest.byKey(wireIndex, firstGroup, lastGroup)
                        .withKeysOnly()
                        .withLimit(FETCH_ROWS);
        if (horizon != null) {
            request = request.after(horizonGroup, horizon);
        }
        ScanPage page = session.await(session.scan(request));
        EntryBatch rows = page.rows();
        for (int i = 0; i < rows.size(); i++) {
            horizon = rows.key(i);
            horizonGroup = rows.group(i);
            T timer = deserialize(rows, i);
            timers.put(new Timer<>(horizon, timer, horizonGroup), timer);
        }
        complete = page.done();
    }

    private void leaveHalfToStore() {
        while (timers.size() > MAX_IN_MEMORY / 2) {
            timers.pollLastEntry();
        }
        Timer<T> last = timers.lastKey();
        horizon = last.bytes;
        horizonGroup = last.group;
        complete = false;
    }

    // --------------------------------------------------------------------------------- the changes

    private void noteAdded(byte[] bytes, int group, boolean absentInMemory) {
        Key key = new Key(bytes);
        Change change = changes.get(key);
        if (change != null) {
            change.add = true;
            return;
        }
        note(key, new Change(group, true, absentInMemory));
    }

    private void noteRemoved(byte[] bytes, int group) {
        Key key = new Key(bytes);
        Change change = changes.get(key);
        if (change == null) {
            note(key, new Change(group, false, false));
        } else if (change.absentInStore) {
            changes.remove(key); // came and went between two flushes
        } else {
            change.add = false;
        }
    }

    private void note(Key key, Change change) {
        changes.put(key, change);
        StateAccess.run(() -> writeBehind.noteDirty(ROW_BYTES + key.bytes.length));
    }

    @Override
    public long dirtyBytes() {
        return (long) ROW_BYTES * changes.size();
    }

    @Override
    public void flush(WriteSink sink) throws IOException, InterruptedException {
        Map<Key, Change> sent = changes;
        changes = new HashMap<>();
        send(sent, sink);
    }

    /** Most timers that are set and fire between two barriers never need to be sent. */
    @Override
    public SealedChanges seal(long stage) {
        if (changes.isEmpty()) {
            return null;
        }
        Map<Key, Change> sealed = changes;
        changes = new HashMap<>();
        return sink -> send(sealed, sink);
    }

    private void send(Map<Key, Change> sent, WriteSink sink)
            throws IOException, InterruptedException {
        for (Map.Entry<Key, Change> entry : sent.entrySet()) {
            byte[] key = entry.getKey().bytes;
            Change change = entry.getValue();
            sink.add(
                    wireIndex,
                    change.group,
                    change.add ? EntryBatch.OP_PUT : EntryBatch.OP_DELETE,
                    key,
                    0,
                    key.length,
                    NOTHING,
                    0,
                    0);
        }
    }

    // ----------------------------------------------------------------------------------
    // serializing

    /**
     * The timer to hold in memory. The caller's object may hold another key soon: backends that
     * serialize allow that, and PyFlink relies on it.
     */
    private T keep(T timer) {
        return mutable ? serializer.copy(timer) : timer;
    }

    private int group(T timer) {
        return KeyGroupRangeAssignment.assignToKeyGroup(timer.getKey(), keyGroups);
    }

    private byte[] serialize(T timer) {
        try {
            out.clear();
            serializer.serialize(timer, out);
            return out.getCopyOfBuffer();
        } catch (IOException e) {
            throw new FlinkRuntimeException("Cannot serialize a timer.", e);
        }
    }

    private T deserialize(EntryBatch rows, int i) throws IOException {
        in.setBuffer(rows.keyData(), rows.keyOffset(i), rows.keyLength(i));
        return serializer.deserialize(in);
    }
}
