package org.flinkndb.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;

import org.flinkndb.proto.v1.Batch;
import org.flinkndb.proto.v1.Entry;
import org.flinkndb.proto.v1.Op;

import java.io.IOException;

/** Puts entries into the wire's Batch and takes them out. */
final class Batches {
    /** Up to so many entries travel as protobuf: below it, Arrow's metadata outweighs them. */
    private static final int INLINE_ENTRIES = 8;

    private static final Op[] OPS = {
        Op.OP_NONE, Op.OP_PUT, Op.OP_DELETE, Op.OP_APPEND, Op.OP_DELETE_PREFIX
    };

    private Batches() {}

    /** The batch must not change afterwards. */
    static Batch toWire(EntryBatch batch) throws IOException {
        if (batch.size() > INLINE_ENTRIES) {
            return Batch.newBuilder()
                    .setArrow(UnsafeByteOperations.unsafeWrap(ArrowFrames.encode(batch)))
                    .build();
        }
        Batch.Builder wire = Batch.newBuilder();
        for (int i = 0; i < batch.size(); i++) {
            wire.addEntries(
                    Entry.newBuilder()
                            .setState(batch.state(i))
                            .setGroup(batch.group(i))
                            .setOp(OPS[batch.op(i)])
                            .setKey(
                                    UnsafeByteOperations.unsafeWrap(
                                            batch.keyData(),
                                            batch.keyOffset(i),
                                            batch.keyLength(i)))
                            .setValue(
                                    UnsafeByteOperations.unsafeWrap(
                                            batch.valueData(),
                                            batch.valueOffset(i),
                                            batch.valueLength(i))));
        }
        return wire.build();
    }

    static EntryBatch fromWire(Batch wire) throws IOException {
        if (!wire.getArrow().isEmpty()) {
            return ArrowFrames.decode(wire.getArrow().asReadOnlyByteBuffer());
        }
        EntryBatch batch = new EntryBatch(wire.getEntriesCount());
        for (Entry entry : wire.getEntriesList()) {
            batch.add(
                    entry.getState(),
                    entry.getGroup(),
                    (byte) entry.getOpValue(),
                    bytes(entry.getKey()),
                    bytes(entry.getValue()));
        }
        return batch;
    }

    private static byte[] bytes(ByteString text) {
        return text.toByteArray();
    }
}
