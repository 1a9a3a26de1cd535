package org.flinkndb.cache;

/**
 * Says of keys that are not cached whether they may be in the store: a Bloom filter of what was
 * evicted, made of layers that double, so that it needs no size in advance. About one false "maybe"
 * in a hundred (ten bits and seven probes for a key). For the task thread.
 */
public final class AbsenceFilter {
    private static final int FIRST_KEYS = 1 << 12;
    private static final int BITS_PER_KEY = 10;
    private static final int PROBES = 7;
    private static final int MAX_LAYERS = 16;

    private final long[][] layers = new long[MAX_LAYERS][];
    private int used;
    private long keysInTop;

    /** Bytes of the filter. */
    public long bytes() {
        long bytes = 0;
        for (int i = 0; i < used; i++) {
            bytes += 8L * layers[i].length;
        }
        return bytes;
    }

    public void add(int hash) {
        if (used == 0 || keysInTop >= capacity(used - 1) && used < MAX_LAYERS) {
            layers[used] = new long[(int) (capacity(used) * BITS_PER_KEY / 64)];
            used++;
            keysInTop = 0;
        }
        if (!contains(layers[used - 1], mix(hash))) {
            set(layers[used - 1], mix(hash));
            keysInTop++;
        }
    }

    /** False = certainly never added. */
    public boolean mayContain(int hash) {
        long mixed = mix(hash);
        for (int i = used - 1; i >= 0; i--) {
            if (contains(layers[i], mixed)) {
                return true;
            }
        }
        return false;
    }

    private static long capacity(int layer) {
        return (long) FIRST_KEYS << layer;
    }

    private static boolean contains(long[] bits, long mixed) {
        int h = (int) mixed;
        int step = (int) (mixed >>> 32) | 1;
        for (int i = 0; i < PROBES; i++, h += step) {
            int bit = (int) Long.remainderUnsigned(h & 0xFFFFFFFFL, 64L * bits.length);
            if ((bits[bit >>> 6] & (1L << bit)) == 0) {
                return false;
            }
        }
        return true;
    }

    private static void set(long[] bits, long mixed) {
        int h = (int) mixed;
        int step = (int) (mixed >>> 32) | 1;
        for (int i = 0; i < PROBES; i++, h += step) {
            int bit = (int) Long.remainderUnsigned(h & 0xFFFFFFFFL, 64L * bits.length);
            bits[bit >>> 6] |= 1L << bit;
        }
    }

    /** The finalizer of MurmurHash3 for 64 bits (Austin Appleby, public domain). */
    private static long mix(int hash) {
        long h = hash * 0x9E3779B97F4A7C15L;
        h ^= h >>> 33;
        h *= 0xff51afd7ed558ccdL;
        h ^= h >>> 33;
        h *= 0xc4ceb9fe1a85ec53L;
        return h ^ (h >>> 33);
    }
}
