package org.flinkndb.evolution;

/** What is known of the numbers that arrived: first release. */
public class Account {
    public long count;
    public String note;
    public long last;

    /** The account after one number more. Numbers arrive from {@code first} on in steps. */
    static Account next(Account before, long number, long first, long step) {
        Account next = new Account();
        next.count = (before == null ? 0 : before.count) + 1;
        next.last = number;
        next.note = "number " + number;
        if (next.count != (number - first) / step + 1
                || before != null && !before.note.equals("number " + (number - step))) {
            throw new IllegalStateException(
                    "VIOLATION: number " + number + " found count " + (next.count - 1));
        }
        return next;
    }

    /** The first release does not know. */
    long sinceNumber() {
        return -1;
    }
}
