package org.flinkndb.client;

/** What a scan reads: rows of one state, in one of two orders, page by page. Immutable. */
public final class ScanRequest {
    private final int state;
    private final int firstGroup;
    private final int lastGroup;
    private final byte[] prefix;
    private final boolean keyOrder;
    private final boolean keysOnly;
    private final int limitRows;
    private final int afterGroup;
    private final byte[] afterKey;

    private ScanRequest(
            int state,
            int firstGroup,
            int lastGroup,
            byte[] prefix,
            boolean keyOrder,
            boolean keysOnly,
            int limitRows,
            int afterGroup,
            byte[] afterKey) {
        this.state = state;
        this.firstGroup = firstGroup;
        this.lastGroup = lastGroup;
        this.prefix = prefix;
        this.keyOrder = keyOrder;
        this.keysOnly = keysOnly;
        this.limitRows = limitRows;
        this.afterGroup = afterGroup;
        this.afterKey = afterKey;
    }

    /** Rows by key group, then key. */
    public static ScanRequest byGroup(int state, int firstGroup, int lastGroup) {
        return new ScanRequest(
                state, firstGroup, lastGroup, new byte[0], false, false, 0, -1, null);
    }

    /** Rows by key bytes over all key groups, then key group: the order of timers. */
    public static ScanRequest byKey(int state, int firstGroup, int lastGroup) {
        return new ScanRequest(state, firstGroup, lastGroup, new byte[0], true, false, 0, -1, null);
    }

    /** Only rows whose key starts with the prefix. */
    public ScanRequest withPrefix(byte[] newPrefix) {
        return new ScanRequest(
                state,
                firstGroup,
                lastGroup,
                newPrefix,
                keyOrder,
                keysOnly,
                limitRows,
                afterGroup,
                afterKey);
    }

    /** Values come back empty. */
    public ScanRequest withKeysOnly() {
        return new ScanRequest(
                state,
                firstGroup,
                lastGroup,
                prefix,
                keyOrder,
                true,
                limitRows,
                afterGroup,
                afterKey);
    }

    /** At most so many rows in a page; 0 leaves it to the server. */
    public ScanRequest withLimit(int rows) {
        return new ScanRequest(
                state,
                firstGroup,
                lastGroup,
                prefix,
                keyOrder,
                keysOnly,
                rows,
                afterGroup,
                afterKey);
    }

    /** The scan that goes on strictly after a row. */
    public ScanRequest after(int group, byte[] key) {
        return new ScanRequest(
                state, firstGroup, lastGroup, prefix, keyOrder, keysOnly, limitRows, group, key);
    }

    public int state() {
        return state;
    }

    public int firstGroup() {
        return firstGroup;
    }

    public int lastGroup() {
        return lastGroup;
    }

    public byte[] prefix() {
        return prefix;
    }

    public boolean keyOrder() {
        return keyOrder;
    }

    public boolean keysOnly() {
        return keysOnly;
    }

    public int limitRows() {
        return limitRows;
    }

    /** Key group to go on after, −1 at the start. */
    public int afterGroup() {
        return afterGroup;
    }

    /** Key to go on after, null at the start. */
    public byte[] afterKey() {
        return afterKey;
    }
}
