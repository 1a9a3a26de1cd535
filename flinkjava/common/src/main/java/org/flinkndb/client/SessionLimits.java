package org.flinkndb.client;

/** Sizes that the server takes; larger things are refused before they are sent. */
public final class SessionLimits {
    private final int maxFrameBytes;
    private final int maxValueBytes;
    private final int maxKeyBytes;
    private final int maxBatchRows;
    private final int maxMessageBytes;

    public SessionLimits(
            int maxFrameBytes,
            int maxValueBytes,
            int maxKeyBytes,
            int maxBatchRows,
            int maxMessageBytes) {
        this.maxFrameBytes = maxFrameBytes;
        this.maxValueBytes = maxValueBytes;
        this.maxKeyBytes = maxKeyBytes;
        this.maxBatchRows = maxBatchRows;
        this.maxMessageBytes = maxMessageBytes;
    }

    /** Largest frame, in bytes. */
    public int maxFrameBytes() {
        return maxFrameBytes;
    }

    /** Largest value of one row, in bytes. */
    public int maxValueBytes() {
        return maxValueBytes;
    }

    /** Largest key of one row, in bytes. */
    public int maxKeyBytes() {
        return maxKeyBytes;
    }

    /** Most entries in one batch. */
    public int maxBatchRows() {
        return maxBatchRows;
    }

    /** Largest message, in bytes: larger frames are sent in parts. */
    public int maxMessageBytes() {
        return maxMessageBytes;
    }
}
