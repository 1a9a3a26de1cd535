package org.flinkndb.state;

/**
 * Estimates how much heap the values of a state take, from their serialized size and what samples of
 * them were measured to take. For the task thread.
 */
final class SizeEstimate {
    /** An entry of a cache with its key and links. */
    static final int ENTRY_BYTES = 160;

    /** Before the first sample: tuples of boxed numbers and strings take about so many times as much. */
    private static final double FIRST_FACTOR = 3;

    private static final int FIRST_SAMPLES = 16;
    private static final int SAMPLE_EVERY = 64;
    private static final int LARGE = 16 << 10;

    /** How fast older samples are forgotten. */
    private static final double KEEP = 15.0 / 16;

    private final HeapMeter meter = new HeapMeter();
    private long average = 64;
    private long seen;
    private boolean due;
    private double sampledSerialized;
    private double sampledHeap;
    private double factor = FIRST_FACTOR;

    /** Whether the next value that is written should be serialized, to learn its size. */
    boolean wantsSample() {
        nextIsDue();
        return due || average > LARGE;
    }

    /** Learns from a value that was read, or null if it is not wanted any more. */
    void learnRead(long serialized, Object value) {
        nextIsDue();
        learnWritten(serialized, value);
    }

    private void nextIsDue() {
        seen++;
        due = seen <= FIRST_SAMPLES || seen % SAMPLE_EVERY == 0;
    }

    /** Learns from a value that was written and serialized, as wanted. */
    void learnWritten(long serialized, Object value) {
        average += (serialized - average) / 8 + Long.signum(serialized - average);
        long heap = due && value != null ? meter.measure(value) : -1;
        if (heap >= 0) {
            sampledSerialized = KEEP * sampledSerialized + Math.max(1, serialized);
            sampledHeap = KEEP * sampledHeap + heap;
            factor = sampledHeap / sampledSerialized;
        }
    }

    /** Serialized size to be expected. */
    long serialized() {
        return Math.max(1, average);
    }

    /** Heap bytes of an entry whose content serializes to so many bytes. */
    long heap(long serialized) {
        return ENTRY_BYTES + content(serialized);
    }

    /** Heap bytes of what serializes to so many bytes, alone. */
    long content(long serialized) {
        return (long) (factor * serialized);
    }
}
