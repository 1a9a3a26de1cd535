package org.flinkndb.evolution;

/** What is known of the numbers that arrived: second release, without the note, with a sum. */
public class Account {
    /** Sum of the numbers since the first one that this release saw. */
    public long sum;

    public Long since;
    public long last;
    public long count;

    /** The account after one number more. Numbers arrive from {@code first} on in steps. */
    static Account next(Account before, long number, long first, long step) {
        Account next = new Account();
        next.count = (before == null ? 0 : before.count) + 1;
        next.since = before == null || before.since == null ? Long.valueOf(number) : before.since;
        next.sum = (before == null ? 0 : before.sum) + number;
        next.last = number;
        long numbers = (number - next.since) / step + 1;
        if (next.count != (number - first) / step + 1
                || before != null && before.last != number - step
                || next.sum != numbers * (next.since + number) / 2) {
            throw new IllegalStateException(
                    "VIOLATION: number " + number + " found count " + (next.count - 1));
        }
        return next;
    }

    long sinceNumber() {
        return since;
    }
}
