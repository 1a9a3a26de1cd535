package org.flinkndb.cache;

/**
 * Decides when to look for changes to send ahead of the barrier. A state that grows, or whose entries
 * are changed once and then left alone, would otherwise send everything after the barrier and keep the
 * checkpoint waiting. Entries that are changed again and again had better be sent once, at the barrier.
 * So a look takes only what was left alone since the one before; where that is little, the next look is
 * later; and when much of what was sent ahead changes again in the same epoch, nothing is for a while.
 * For the task thread.
 */
final class SendAhead {
    /** This part of what may be held back is worth a look. */
    private static final int PART = 16;

    /** One byte of so many may be sent in vain. */
    private static final int IN_VAIN = 4;

    private static final int LONGEST_PAUSE = 16;

    private final long minBytes;
    private long firstStage = 1;
    private long step;
    private int looks;
    private long sent;
    private long changedAgain;
    private int pause;
    private int nextPause = 1;

    /**
     * @param maxDirtyBytes what may be held back altogether
     */
    SendAhead(long maxDirtyBytes) {
        minBytes = Math.max(1, maxDirtyBytes / PART);
        step = minBytes;
    }

    /** Whether a look is due when so many bytes have become dirty since the last one. */
    boolean worthIt(long newBytes) {
        return newBytes >= step && pause == 0 && !inVain();
    }

    private boolean inVain() {
        return changedAgain * IN_VAIN > sent;
    }

    /** Notes that a look found so many bytes, which are sent ahead. */
    void noteSent(long bytes) {
        sent += bytes;
        // The first look of an epoch finds nothing.
        step = looks++ > 0 && bytes < minBytes / 2 ? 2 * step : minBytes;
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
        step = minBytes;
        looks = 0;
        sent = 0;
        changedAgain = 0;
    }
}
