package org.flinkndb.evolution;

/** An Avro record (by reflection) of the last number: first release. */
public class Receipt {
    public long number;
    public long count;

    static Receipt next(Receipt before, long number, long count) {
        if (before != null && before.count != count - 1) {
            throw new IllegalStateException(
                    "VIOLATION: receipt of count " + before.count + " before count " + count);
        }
        Receipt next = new Receipt();
        next.number = number;
        next.count = count;
        return next;
    }
}
