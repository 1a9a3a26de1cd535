package org.flinkndb.cache;

/**
 * Decides when changes are sent ahead of the barrier. A state that grows, or whose entries are changed
 * once and then left alone, would otherwise send everything after the barrier and keep the checkpoint
 * waiting. Entries that are changed again and again had better be sent once, at the barrier: what was
 * sent ahead and changed again in the same epoch is counted, and when it is much, nothing is sent ahead
 * for a while. For the task thread.
 */
final class SendAhead {
    /** This part of what may be held back is worth to be sent. */
    private static final int PART = 8;

    /** One byte of so many may be sent in vain. */
    private static final int IN_VAIN = 4;

    private static final int LONGEST_PAUSE = 16;

    private final long minBytes;
    private long firstStage = 1;
    private long sent;
    private long changedAgain;
    private int pause;
    private int nextPause = 1;

    /**
     * @param maxDirtyBytes what may be held back altogether
     */
    SendAhead(long maxDirtyBytes) {
        minBytes = Math.max(1, maxDirtyBytes / PART);
    }

    /** Whether so many bytes that are held back should be sent now. */
    boolean worthIt(long dirtyBytes) {
        return dirtyBytes >= minBytes && pause == 0 && !inVain();
    }

    private boolean inVain() {
        return changedAgain * IN_VAIN > sent;
    }

    /** Notes that so many bytes were sent ahead. */
    void noteSent(long bytes) {
        sent += bytes;
    }

    /** Notes that so many bytes changed which had been taken from their entry in a stage. */
    void noteChangedAgain(long takenStage, long bytes) {
        if (takenStage >= firstStage) {
            changedAgain += bytes;
        }
    }

    /** An epoch has ended; the next one begins with a stage. */
    void nextEpoch(long stage) {
        if (inVain()) {
            pause = nextPause;
            nextPause = Math.min(LONGEST_PAUSE, 2 * nextPause);
        } else if (sent > 0) {
            nextPause = 1;
        } else if (pause > 0) {
            pause--;
        }
        firstStage = stage;
        sent = 0;
        changedAgain = 0;
    }
}
