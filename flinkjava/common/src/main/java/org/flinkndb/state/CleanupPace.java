package org.flinkndb.state;

/**
 * Says when incremental clean-up may begin a pass over what is cached. Flink asks at every access once
 * the last pass has ended, and a pass begins with a look at each entry: only as many accesses as there
 * are entries make up for that. For the task thread.
 */
final class CleanupPace {
    private int accessesLeft;

    /** Counts an access, and says whether a pass over so many entries may begin with it. */
    boolean mayBegin(int entries) {
        if (accessesLeft > 0) {
            accessesLeft--;
            return false;
        }
        accessesLeft = entries;
        return true;
    }
}
