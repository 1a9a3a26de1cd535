package org.flinkndb.evolution;

import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/** An Avro record of the last number: first release. */
final class Receipt {
    static final Schema SCHEMA =
            SchemaBuilder.record("Receipt")
                    .namespace("org.flinkndb.evolution")
                    .fields()
                    .requiredLong("number")
                    .requiredLong("count")
                    .endRecord();

    private Receipt() {}

    static GenericRecord next(GenericRecord before, long number, long count) {
        if (before != null && (Long) before.get("count") != count - 1) {
            throw new IllegalStateException("VIOLATION: " + before + " before count " + count);
        }
        GenericRecord next = new GenericData.Record(SCHEMA);
        next.put("number", number);
        next.put("count", count);
        return next;
    }
}
