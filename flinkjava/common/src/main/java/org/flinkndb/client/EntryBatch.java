package org.flinkndb.client;

import java.util.Arrays;

/**
 * Entries in columns, on the heap: what a frame carries in either direction. Grows as needed; not
 * thread-safe. Keys are the bytes of Flink's canonical savepoint format without the key-group
 * prefix.
 */
public final class EntryBatch {
    /** Numbers of the wire's Op. */
    public static final byte OP_NONE = 0;

    public static final byte OP_PUT = 1;
    public static final byte OP_DELETE = 2;
    public static final byte OP_APPEND = 3;
    public static final byte OP_DELETE_PREFIX = 4;

    private static final byte[] EMPTY = new byte[0];

    private int size;
    private short[] states;
    private short[] groups;
    private byte[] ops;
    private int[] keyEnds;
    private int[] valueEnds;
    private byte[] keys;
    private byte[] values;

    public EntryBatch() {
        this(64);
    }

    public EntryBatch(int expectedEntries) {
        this(expectedEntries, expectedEntries * 16, expectedEntries * 16);
    }

    public EntryBatch(int expectedEntries, int expectedKeyBytes, int expectedValueBytes) {
        int n = Math.max(1, expectedEntries);
        states = new short[n];
        groups = new short[n];
        ops = new byte[n];
        keyEnds = new int[n];
        valueEnds = new int[n];
        keys = new byte[Math.max(16, expectedKeyBytes)];
        values = new byte[Math.max(16, expectedValueBytes)];
    }

    public void add(int state, int group, byte op, byte[] key, byte[] value) {
        add(state, group, op, key, 0, key.length, value, 0, value.length);
    }

    public void add(int state, int group, byte op, byte[] key) {
        add(state, group, op, key, 0, key.length, EMPTY, 0, 0);
    }

    /** Adds an entry; the bytes are copied. */
    public void add(
            int state,
            int group,
            byte op,
            byte[] key,
            int keyOffset,
            int keyLength,
            byte[] value,
            int valueOffset,
            int valueLength) {
        if (size == ops.length) {
            growEntries();
        }
        int keyStart = keyBytes();
        int valueStart = valueBytes();
        keys = room(keys, keyStart, keyLength);
        values = room(values, valueStart, valueLength);
        System.arraycopy(key, keyOffset, keys, keyStart, keyLength);
        System.arraycopy(value, valueOffset, values, valueStart, valueLength);
        states[size] = (short) state;
        groups[size] = (short) group;
        ops[size] = op;
        keyEnds[size] = keyStart + keyLength;
        valueEnds[size] = valueStart + valueLength;
        size++;
    }

    /** Adds all entries of another batch. */
    public void addAll(EntryBatch other) {
        for (int i = 0; i < other.size; i++) {
            add(
                    other.state(i),
                    other.group(i),
                    other.op(i),
                    other.keys,
                    other.keyOffset(i),
                    other.keyLength(i),
                    other.values,
                    other.valueOffset(i),
                    other.valueLength(i));
        }
    }

    public int size() {
        return size;
    }

    public boolean isEmpty() {
        return size == 0;
    }

    /** Bytes of all keys and values. */
    public long dataBytes() {
        return (long) keyBytes() + valueBytes();
    }

    public int state(int i) {
        return states[check(i)] & 0xFFFF;
    }

    public int group(int i) {
        return groups[check(i)] & 0xFFFF;
    }

    public byte op(int i) {
        return ops[check(i)];
    }

    public int keyOffset(int i) {
        return check(i) == 0 ? 0 : keyEnds[i - 1];
    }

    public int keyLength(int i) {
        return keyEnds[check(i)] - keyOffset(i);
    }

    public int valueOffset(int i) {
        return check(i) == 0 ? 0 : valueEnds[i - 1];
    }

    public int valueLength(int i) {
        return valueEnds[check(i)] - valueOffset(i);
    }

    /** A copy of the key of entry i. */
    public byte[] key(int i) {
        return Arrays.copyOfRange(keys, keyOffset(i), keyEnds[i]);
    }

    /** A copy of the value of entry i. */
    public byte[] value(int i) {
        return Arrays.copyOfRange(values, valueOffset(i), valueEnds[i]);
    }

    /** The array that holds all keys, see {@link #keyOffset}; not to be changed. */
    public byte[] keyData() {
        return keys;
    }

    /** The array that holds all values, see {@link #valueOffset}; not to be changed. */
    public byte[] valueData() {
        return values;
    }

    private int keyBytes() {
        return size == 0 ? 0 : keyEnds[size - 1];
    }

    private int valueBytes() {
        return size == 0 ? 0 : valueEnds[size - 1];
    }

    private int check(int i) {
        if (i < 0 || i >= size) {
            throw new IndexOutOfBoundsException("entry " + i + " of " + size);
        }
        return i;
    }

    private void growEntries() {
        int n = ops.length * 2;
        states = Arrays.copyOf(states, n);
        groups = Arrays.copyOf(groups, n);
        ops = Arrays.copyOf(ops, n);
        keyEnds = Arrays.copyOf(keyEnds, n);
        valueEnds = Arrays.copyOf(valueEnds, n);
    }

    private static byte[] room(byte[] data, int used, int more) {
        long need = (long) used + more;
        if (need <= data.length) {
            return data;
        }
        if (need > Integer.MAX_VALUE - 16) {
            throw new IllegalStateException("a batch holds at most 2 GiB of keys or of values");
        }
        return Arrays.copyOf(
                data, (int) Math.min(Integer.MAX_VALUE - 16, Math.max(need, data.length * 2L)));
    }
}
