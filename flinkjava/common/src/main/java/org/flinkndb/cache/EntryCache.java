package org.flinkndb.cache;

import org.flinkndb.client.EntryBatch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * The object cache of one state: entries by key and namespace, the list of dirty ones, and what is
 * known of keys that are not cached. Subclasses say what an entry holds and how it is written.
 *
 * <p>For the task thread, except {@link SealedChanges#drain} (flusher) and {@link #peek} (any).
 */
public abstract class EntryCache<K, N, E extends CacheEntry<K, N>>
        implements DirtySource, CacheBudget.Evictable {
    private static final int FIRST_SLOTS = 64;

    private final WriteBehind writeBehind;
    private final CacheBudget.Account account;

    private volatile CacheEntry<K, N>[] slots = newSlots(FIRST_SLOTS);
    private int size;
    private long bytes;
    private CacheEntry<K, N> oldest;
    private CacheEntry<K, N> newest;
    private AbsenceFilter evicted = new AbsenceFilter();
    private long evictedBytes;
    private boolean storeUnknown;
    private AbsenceFilter stored;
    private boolean keysAreRead;
    private long removals;
    private AbsenceFilter watched;

    private List<E> dirty = new ArrayList<>();
    private long dirtyBytes;
    private Sealed sealed;

    /**
     * @param storeUnknown whether the store may hold rows of this state that were never cached here
     */
    protected EntryCache(
            WriteBehind writeBehind, CacheBudget.Account account, boolean storeUnknown) {
        this.writeBehind = writeBehind;
        this.account = account;
        this.storeUnknown = storeUnknown;
        writeBehind.register(this);
        account.register(this);
    }

    /** Writes the changes that an entry holds, and marks it as in step with the store. */
    protected abstract void write(E entry, WriteSink sink, boolean byTask)
            throws IOException, InterruptedException;

    /** Whether an entry that is let go must be remembered as possibly being in the store. */
    protected abstract boolean mayBeStored(E entry);

    /** Hash of a key and namespace. */
    protected static int hash(Object key, Object namespace) {
        int h = key.hashCode() * 31 + namespace.hashCode();
        h *= 0x9E3779B9;
        return h ^ (h >>> 15);
    }

    // ------------------------------------------------------------------------------------ look-up

    /** The cached entry, or null. */
    @SuppressWarnings("unchecked")
    protected final E find(K key, N namespace, int hash) {
        CacheEntry<K, N>[] table = slots;
        for (CacheEntry<K, N> e = table[hash & (table.length - 1)]; e != null; e = e.next) {
            if (e.is(key, namespace, hash)) {
                e.used = true;
                account.count(true);
                return (E) e;
            }
        }
        account.count(false);
        return null;
    }

    /**
     * As {@link #find}, for other threads: may miss an entry that is there, never returns a wrong one.
     * Its content is to be read under its monitor.
     */
    @SuppressWarnings("unchecked")
    protected final E peek(K key, N namespace) {
        int hash = hash(key, namespace);
        CacheEntry<K, N>[] table = slots;
        for (CacheEntry<K, N> e = table[hash & (table.length - 1)]; e != null; e = e.next) {
            if (e.is(key, namespace, hash)) {
                return (E) e;
            }
        }
        return null;
    }

    /** Whether an entry has not been evicted. */
    protected final boolean isCached(E entry) {
        CacheEntry<K, N>[] table = slots;
        CacheEntry<K, N> e = table[entry.hash() & (table.length - 1)];
        while (e != null && e != entry) {
            e = e.next;
        }
        return e != null;
    }

    /** Whether a key that is not cached is known not to be in the store. */
    protected final boolean knownAbsent(int hash) {
        if (storeUnknown && (stored == null || stored.mayContain(hash))) {
            return false;
        }
        return !evicted.mayContain(hash);
    }

    /** Whether the store may hold keys that nothing here tells of. */
    protected final boolean mayHoldOthers() {
        return storeUnknown && stored == null;
    }

    /** From now on, the store holds nothing that is not, or was not, cached. */
    protected final void storeIsKnown() {
        storeUnknown = false;
    }

    /** The keys that the store holds are read from now on; what is evicted meanwhile may be missed. */
    protected final void beginReadingKeys() {
        keysAreRead = true;
    }

    /** The keys could not be read, or are too many. */
    protected final void keysNotRead() {
        keysAreRead = false;
        if (mayHoldOthers()) {
            forgetEvicted();
        }
    }

    /**
     * The store holds no keys but these, those that are cached, and those that were since the keys
     * began to be read.
     */
    protected final void storeHoldsOnly(AbsenceFilter keys) {
        keysAreRead = false;
        dropStored();
        stored = keys;
        account.add(keys.bytes());
    }

    /** Called when nothing is known of the store's keys any more: a filter of them is to be made. */
    protected abstract void storeBecameUnknown();

    /** How many entries have left the cache. */
    protected final long removals() {
        return removals;
    }

    /** From now on it is noted which keys leave the cache, and those noted so far are forgotten. */
    public final void watchRemovals() {
        watched = new AbsenceFilter();
    }

    /** Ends {@link #watchRemovals}. */
    public final void endWatch() {
        watched = null;
    }

    /** Whether a key may have left the cache since the watch began. */
    protected final boolean mayHaveLeft(K key, N namespace) {
        return watched.mayContain(hash(key, namespace));
    }

    /** Whether entries can be added without evicting others. */
    protected final boolean hasRoom() {
        return account.usedBytes() < account.limit() - account.limit() / 16;
    }

    /** Adds an entry that is not there yet. */
    protected final void insert(E entry, long size) throws IOException, InterruptedException {
        makeRoom();
        if (this.size >= slots.length) {
            grow();
        }
        int slot = entry.hash() & (slots.length - 1);
        entry.next = slots[slot];
        slots[slot] = entry;
        slots = slots; // publishes the entry to peeking threads
        this.size++;
        linkNewest(entry);
        charge(entry, size);
    }

    /** Corrects the size that an entry is counted with. */
    protected final void charge(CacheEntry<K, N> entry, long size) {
        long difference = size - entry.charged;
        entry.charged = size;
        bytes += difference;
        account.add(difference);
    }

    /** The size that an entry is counted with. */
    protected final long chargeOf(CacheEntry<K, N> entry) {
        return entry.charged;
    }

    /**
     * Makes room in the cache. Entries that were found before may be gone afterwards: to be called at
     * the beginning of an operation that will let an entry grow.
     */
    protected final void makeRoom() throws IOException, InterruptedException {
        if (account.isOver() && !account.makeRoom()) {
            writeBehind.flush(); // dirty entries stand in the way
            account.makeRoom();
        }
    }

    @SuppressWarnings("unchecked")
    private CacheEntry<K, N>[] newSlots(int n) {
        return (CacheEntry<K, N>[]) new CacheEntry<?, ?>[n];
    }

    private void grow() {
        CacheEntry<K, N>[] larger = newSlots(slots.length * 2);
        for (CacheEntry<K, N> head : slots) {
            for (CacheEntry<K, N> e = head; e != null; ) {
                CacheEntry<K, N> next = e.next;
                int slot = e.hash() & (larger.length - 1);
                e.next = larger[slot];
                larger[slot] = e;
                e = next;
            }
        }
        slots = larger;
    }

    // ---------------------------------------------------------------------------------- eviction

    @Override
    public final long cachedBytes() {
        return bytes;
    }

    /** Whether the store may hold rows that are not cached. */
    public final boolean mayHaveUncached() {
        return storeUnknown || evicted.bytes() > 0;
    }

    /** Number of cached entries. */
    public final int cachedEntries() {
        return size;
    }

    @Override
    public final long evict(long goal) {
        long freed = 0;
        for (int looks = 2 * size; freed < goal && looks > 0 && oldest != null; looks--) {
            CacheEntry<K, N> entry = oldest;
            if (entry.used || !evictable(entry)) {
                entry.used = false;
                unlink(entry);
                linkNewest(entry);
                continue;
            }
            freed += entry.charged;
            remove(entry);
        }
        return freed;
    }

    private boolean evictable(CacheEntry<K, N> entry) {
        return !mayBeOnItsWay(entry);
    }

    @SuppressWarnings("unchecked")
    private void remove(CacheEntry<K, N> entry) {
        if (mayBeStored((E) entry)) {
            noteEvicted(entry.hash());
        }
        int slot = entry.hash() & (slots.length - 1);
        CacheEntry<K, N> previous = null;
        for (CacheEntry<K, N> e = slots[slot]; e != entry; e = e.next) {
            previous = e;
        }
        if (previous == null) {
            slots[slot] = entry.next;
        } else {
            previous.next = entry.next;
        }
        unlink(entry);
        charge(entry, 0);
        size--;
        removals++;
        if (watched != null) {
            watched.add(entry.hash());
        }
    }

    /** Remembers a key that the store may hold, unless the store may hold any. */
    private void noteEvicted(int hash) {
        if (mayHoldOthers() && !keysAreRead) {
            return;
        }
        evicted.add(hash);
        long grown = evicted.bytes() - evictedBytes;
        if (grown == 0) {
            return;
        }
        evictedBytes += grown;
        account.add(grown);
        if (evictedBytes > maxFilterBytes()) {
            // It takes the room of entries, and holds keys that are long gone from the store.
            forgetEvicted();
            dropStored();
            storeUnknown = true;
            keysAreRead = false; // the keys read may lack what was just forgotten
            storeBecameUnknown();
        }
    }

    private void forgetEvicted() {
        account.add(-evictedBytes);
        evictedBytes = 0;
        evicted = new AbsenceFilter();
    }

    private void dropStored() {
        if (stored != null) {
            account.add(-stored.bytes());
            stored = null;
        }
    }

    /** What is read before it is asked for is to take a small part of the room, or it is gone by then. */
    protected final long maxReadAlongBytes() {
        return account.limit() / 32;
    }

    /** Above this a filter of keys is not worth its room. */
    protected final long maxFilterBytes() {
        return account.limit() / 8;
    }

    private void linkNewest(CacheEntry<K, N> entry) {
        entry.older = newest;
        entry.newer = null;
        if (newest == null) {
            oldest = entry;
        } else {
            newest.newer = entry;
        }
        newest = entry;
    }

    private void unlink(CacheEntry<K, N> entry) {
        if (entry.older == null) {
            oldest = entry.newer;
        } else {
            entry.older.newer = entry.newer;
        }
        if (entry.newer == null) {
            newest = entry.older;
        } else {
            entry.newer.older = entry.older;
        }
    }

    /**
     * Whether changes of the entry may not have been sent yet. The order of the looks matters: the
     * flusher first says which stage it took the changes in and then that the entry is clean. Looked
     * at the other way round, an entry could seem to be sent before and clean after.
     */
    protected final boolean mayBeOnItsWay(CacheEntry<K, N> entry) {
        return entry.dirtyStage != CacheEntry.CLEAN || entry.takenStage > writeBehind.sentStage();
    }

    protected final WriteBehind writeBehind() {
        return writeBehind;
    }

    /** Calls for each cached entry. */
    @SuppressWarnings("unchecked")
    protected final void forEach(Consumer<E> action) {
        for (CacheEntry<K, N> e = oldest; e != null; e = e.newer) {
            action.accept((E) e);
        }
    }

    /** Forgets everything that is cached; nothing may be dirty. */
    protected final void clearCache() {
        while (oldest != null) {
            remove(oldest);
        }
        storeUnknown = true;
    }

    // ------------------------------------------------------------------------------ dirty entries

    /**
     * To be called before an entry's content is changed or handed out for change: if an ended stage
     * still holds the entry, its content as of that stage is serialized now.
     */
    protected final void touch(E entry) throws IOException, InterruptedException {
        long held = entry.dirtyStage;
        if (held == CacheEntry.CLEAN || held == writeBehind.stage()) {
            return;
        }
        synchronized (entry) {
            if (entry.dirtyStage == held) {
                sealedOf(held).take(entry);
            }
        }
    }

    private Sealed sealedOf(long stage) {
        Sealed s = sealed;
        while (s.stage != stage) {
            s = s.before;
        }
        return s;
    }

    /** To be called after an entry was changed (and touched before). */
    protected final void markDirty(E entry, long size) throws IOException, InterruptedException {
        entry.changedAtLook = writeBehind.look();
        if (entry.dirtyStage == CacheEntry.CLEAN) {
            entry.dirtyStage = writeBehind.stage();
            dirty.add(entry);
            writeBehind.noteDirtyAgain(entry.takenStage, size);
            noteMoreDirty(size);
        }
    }

    /** As {@link #markDirty(CacheEntry, long)}, and counts {@code more} for one that is dirty already. */
    protected final void markDirty(E entry, long size, long more)
            throws IOException, InterruptedException {
        boolean wasDirty = isDirty(entry);
        markDirty(entry, size);
        if (wasDirty && more > 0) {
            noteMoreDirty(more);
        }
    }

    /** Notes that so many bytes more of a dirty entry will have to be sent. */
    private void noteMoreDirty(long bytes) throws IOException, InterruptedException {
        dirtyBytes += bytes;
        writeBehind.noteDirty(bytes);
    }

    protected final boolean isDirty(E entry) {
        return entry.dirtyStage != CacheEntry.CLEAN;
    }

    @Override
    public final long dirtyBytes() {
        return dirtyBytes;
    }

    @Override
    public final void flush(WriteSink sink) throws IOException, InterruptedException {
        List<E> entries = dirty;
        dirty = new ArrayList<>();
        dirtyBytes = 0;
        for (E entry : entries) {
            write(entry, sink, true);
            entry.dirtyStage = CacheEntry.CLEAN;
        }
    }

    @Override
    public final SealedChanges seal(long stage) {
        if (dirty.isEmpty()) {
            return null;
        }
        Sealed before = sealed;
        if (before != null && before.stage <= writeBehind.sentStage()) {
            before = null; // long done
        }
        sealed = new Sealed(stage, dirty, before);
        dirty = new ArrayList<>();
        dirtyBytes = 0;
        return sealed;
    }

    @Override
    public final SealedChanges sealLeftAlone(long stage, long look) {
        List<E> leftAlone = new ArrayList<>();
        List<E> changing = new ArrayList<>();
        for (E entry : dirty) {
            if (entry.changedAtLook < look) {
                leftAlone.add(entry);
            } else {
                entry.dirtyStage = stage + 1;
                changing.add(entry);
            }
        }
        if (leftAlone.isEmpty()) {
            return null;
        }
        long changingBytes = dirtyBytes * changing.size() / dirty.size(); // about
        dirty = leftAlone;
        SealedChanges changes = seal(stage);
        dirty = changing;
        dirtyBytes = changingBytes;
        return changes;
    }

    /** The dirty entries of an ended stage. */
    private final class Sealed implements SealedChanges {
        private final long stage;
        private final List<E> entries;
        private final Sealed before;

        /** Changes that the task thread serialized because it touched the entry. */
        private final EntryBatch taken = new EntryBatch();

        private Sealed(long stage, List<E> entries, Sealed before) {
            this.stage = stage;
            this.entries = entries;
            this.before = before;
        }

        /** Task thread, with the entry's monitor. */
        private void take(E entry) throws IOException, InterruptedException {
            synchronized (taken) {
                write(entry, taken::add, true);
            }
            entry.takenStage = stage;
            entry.dirtyStage = CacheEntry.CLEAN;
        }

        @Override
        public void drain(WriteSink sink) throws IOException, InterruptedException {
            for (E entry : entries) {
                if (entry.dirtyStage != stage) {
                    continue;
                }
                synchronized (entry) {
                    if (entry.dirtyStage == stage) {
                        write(entry, sink, false);
                        entry.takenStage = stage;
                        entry.dirtyStage = CacheEntry.CLEAN;
                    }
                }
            }
            // No entry is held any more, so nothing more is taken.
            synchronized (taken) {
                for (int i = 0; i < taken.size(); i++) {
                    sink.add(
                            taken.state(i),
                            taken.group(i),
                            taken.op(i),
                            taken.keyData(),
                            taken.keyOffset(i),
                            taken.keyLength(i),
                            taken.valueData(),
                            taken.valueOffset(i),
                            taken.valueLength(i));
                }
            }
            entries.clear(); // lets the evicted ones go
        }
    }
}
