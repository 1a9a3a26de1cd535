package org.flinkndb.state;

/**
 * Estimates how much heap the values of a state take. An object takes about three times its
 * serialized size (measured for tuples of boxed numbers and strings; more for many tiny fields, less
 * for arrays), and an entry with its key and links about 160 bytes.
 */
final class SizeEstimate {
    static final int ENTRY_BYTES = 160;
    private static final int OBJECT_FACTOR = 3;
    private static final int FIRST_SAMPLES = 16;
    private static final int SAMPLE_EVERY = 64;
    private static final int LARGE = 16 << 10;

    private long average = 64;
    private long seen;

    /** Whether the next value should be serialized to learn its size. */
    boolean wantsSample() {
        seen++;
        return seen <= FIRST_SAMPLES || average > LARGE || seen % SAMPLE_EVERY == 0;
    }

    /** Learns a serialized size. */
    void learn(long serialized) {
        average += (serialized - average) / 8 + Long.signum(serialized - average);
    }

    /** Serialized size to be expected. */
    long serialized() {
        return Math.max(1, average);
    }

    /** Heap bytes of an entry whose content serializes to so many bytes. */
    static long heap(long serialized) {
        return ENTRY_BYTES + OBJECT_FACTOR * serialized;
    }
}
