package org.flinkndb.cache;

/**
 * What is cached of one key and namespace. The task thread owns it; while an ended stage still holds
 * it, its content is changed and serialized under its monitor only.
 */
public abstract class CacheEntry<K, N> {
    /** Value of {@link #dirtyStage} when there is nothing to send. */
    static final long CLEAN = 0;

    private final K key;
    private final N namespace;
    private final int hash;
    private final int group;

    // Links of the hash chain and of the eviction queue.
    volatile CacheEntry<K, N> next;
    CacheEntry<K, N> older;
    CacheEntry<K, N> newer;

    /** Set at each use; the evictor gives a second chance. */
    boolean used = true;

    /** Bytes that the account was charged. */
    long charged;

    /** Stage whose changes it holds, or CLEAN. */
    volatile long dirtyStage;

    /** Number of looks at what is dirty before it was last changed, see {@link WriteBehind#look}. */
    long changedAtLook;

    /** Last stage in which a change was taken from it: until that is sent, the server's row is older. */
    volatile long takenStage;

    protected CacheEntry(K key, N namespace, int hash, int group) {
        this.key = key;
        this.namespace = namespace;
        this.hash = hash;
        this.group = group;
    }

    public final K key() {
        return key;
    }

    public final N namespace() {
        return namespace;
    }

    public final int hash() {
        return hash;
    }

    public final int group() {
        return group;
    }

    final boolean is(Object otherKey, Object otherNamespace, int otherHash) {
        return hash == otherHash && key.equals(otherKey) && namespace.equals(otherNamespace);
    }
}
