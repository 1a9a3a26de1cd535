package org.flinkndb.evolution;

import org.apache.avro.reflect.AvroDefault;

/**
 * An Avro record (by reflection) of the last number: second release, with a field more, which Avro
 * fills in where the first release wrote.
 */
public class Receipt {
    public long number;

    @AvroDefault("1")
    public int release;

    public long count;

    static Receipt next(Receipt before, long number, long count) {
        if (before != null
                && (before.count != count - 1 || before.release < 1 || before.release > 2)) {
            throw new IllegalStateException(
                    "VIOLATION: receipt of count "
                            + before.count
                            + " and release "
                            + before.release
                            + " before count "
                            + count);
        }
        Receipt next = new Receipt();
        next.number = number;
        next.count = count;
        next.release = 2;
        return next;
    }
}
