package org.flinkndb.client;

import com.google.flatbuffers.FlatBufferBuilder;

import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.FieldNode;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.MetadataVersion;
import org.apache.arrow.flatbuf.RecordBatch;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Turns entries into Arrow record batch messages and back, on the heap: the metadata through Arrow's
 * published flatbuffers classes, the body straight from byte arrays. The format is that of the Batch
 * message in state.proto; the layout is from https://arrow.apache.org/docs/format/Columnar.html.
 */
final class ArrowFrames {
    private static final int CONTINUATION = 0xFFFFFFFF;
    private static final int ENVELOPE_BYTES = 8;
    private static final int COLUMNS = 5;
    private static final int BUFFERS = 12;
    private static final int STATE_DATA = 1;
    private static final int GROUP_DATA = 3;
    private static final int OP_DATA = 5;
    private static final int KEY_OFFSETS = 7;
    private static final int KEY_DATA = 8;
    private static final int VALUE_OFFSETS = 10;
    private static final int VALUE_DATA = 11;

    private ArrowFrames() {}

    static byte[] encode(EntryBatch batch) throws IOException {
        int rows = batch.size();
        long[] sizes = sizes(batch);
        long body = 0;
        for (long size : sizes) {
            body += padded(size);
        }
        ByteBuffer metadata = metadata(rows, sizes, body);
        int metadataBytes = (int) padded(metadata.remaining() + ENVELOPE_BYTES) - ENVELOPE_BYTES;
        long total = ENVELOPE_BYTES + metadataBytes + body;
        if (total > Integer.MAX_VALUE - 64) {
            throw new IOException("a batch of " + total + " bytes does not fit into one frame");
        }
        ByteBuffer out = ByteBuffer.allocate((int) total).order(ByteOrder.LITTLE_ENDIAN);
        out.putInt(CONTINUATION).putInt(metadataBytes).put(metadata);
        out.position(ENVELOPE_BYTES + metadataBytes);
        putBody(out, batch, sizes);
        return out.array();
    }

    /** Bytes of each buffer, without padding. Validity buffers are left out: nothing is null. */
    private static long[] sizes(EntryBatch batch) {
        int rows = batch.size();
        long[] sizes = new long[BUFFERS];
        sizes[STATE_DATA] = 2L * rows;
        sizes[GROUP_DATA] = 2L * rows;
        sizes[OP_DATA] = rows;
        sizes[KEY_OFFSETS] = 4L * (rows + 1);
        sizes[KEY_DATA] = rows == 0 ? 0 : batch.keyOffset(rows - 1) + batch.keyLength(rows - 1);
        sizes[VALUE_OFFSETS] = 4L * (rows + 1);
        sizes[VALUE_DATA] =
                rows == 0 ? 0 : batch.valueOffset(rows - 1) + batch.valueLength(rows - 1);
        return sizes;
    }

    private static ByteBuffer metadata(int rows, long[] sizes, long body) {
        FlatBufferBuilder builder = new FlatBufferBuilder(512);
        RecordBatch.startBuffersVector(builder, BUFFERS);
        long[] starts = new long[BUFFERS];
        long at = 0;
        for (int i = 0; i < BUFFERS; i++) {
            starts[i] = at;
            at += padded(sizes[i]);
        }
        for (int i = BUFFERS - 1; i >= 0; i--) { // flatbuffers are built from the end
            Buffer.createBuffer(builder, starts[i], sizes[i]);
        }
        int buffers = builder.endVector();
        RecordBatch.startNodesVector(builder, COLUMNS);
        for (int i = 0; i < COLUMNS; i++) {
            FieldNode.createFieldNode(builder, rows, 0);
        }
        int nodes = builder.endVector();
        RecordBatch.startRecordBatch(builder);
        RecordBatch.addLength(builder, rows);
        RecordBatch.addNodes(builder, nodes);
        RecordBatch.addBuffers(builder, buffers);
        int header = RecordBatch.endRecordBatch(builder);
        Message.startMessage(builder);
        Message.addVersion(builder, MetadataVersion.V5);
        Message.addHeaderType(builder, MessageHeader.RecordBatch);
        Message.addHeader(builder, header);
        Message.addBodyLength(builder, body);
        builder.finish(Message.endMessage(builder));
        return builder.dataBuffer();
    }

    private static void putBody(ByteBuffer out, EntryBatch batch, long[] sizes) {
        int rows = batch.size();
        for (int i = 0; i < rows; i++) {
            out.putShort((short) batch.state(i));
        }
        pad(out);
        for (int i = 0; i < rows; i++) {
            out.putShort((short) batch.group(i));
        }
        pad(out);
        for (int i = 0; i < rows; i++) {
            out.put(batch.op(i));
        }
        pad(out);
        for (int i = 0; i < rows; i++) {
            out.putInt(batch.keyOffset(i));
        }
        out.putInt((int) sizes[KEY_DATA]);
        pad(out);
        out.put(batch.keyData(), 0, (int) sizes[KEY_DATA]);
        pad(out);
        for (int i = 0; i < rows; i++) {
            out.putInt(batch.valueOffset(i));
        }
        out.putInt((int) sizes[VALUE_DATA]);
        pad(out);
        out.put(batch.valueData(), 0, (int) sizes[VALUE_DATA]);
        pad(out);
    }

    private static long padded(long size) {
        return (size + 7) & ~7L;
    }

    /** The whole message is padded to eight bytes, so positions in it are as good as in the body. */
    private static void pad(ByteBuffer out) {
        out.position((int) padded(out.position()));
    }

    /**
     * Reads a frame.
     *
     * @throws IOException when it is not one record batch of our schema within its bounds
     */
    static EntryBatch decode(ByteBuffer frame) throws IOException {
        try {
            return decodeChecked(frame.slice().order(ByteOrder.LITTLE_ENDIAN));
        } catch (IndexOutOfBoundsException | IllegalArgumentException e) {
            throw new IOException("invalid Arrow frame", e);
        }
    }

    private static EntryBatch decodeChecked(ByteBuffer frame) throws IOException {
        require(
                frame.remaining() > ENVELOPE_BYTES && frame.getInt(0) == CONTINUATION,
                "no envelope");
        int metadataBytes = frame.getInt(4);
        require(
                metadataBytes > 0 && metadataBytes <= frame.remaining() - ENVELOPE_BYTES,
                "metadata larger than the frame");
        ByteBuffer metadata = frame.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        metadata.position(ENVELOPE_BYTES).limit(ENVELOPE_BYTES + metadataBytes);
        Message message = Message.getRootAsMessage(metadata.slice().order(ByteOrder.LITTLE_ENDIAN));
        require(message.headerType() == MessageHeader.RecordBatch, "no record batch");
        RecordBatch header = (RecordBatch) message.header(new RecordBatch());
        require(header != null && header.compression() == null, "compressed");
        require(header.nodesLength() == COLUMNS, "wrong number of columns");
        require(header.buffersLength() == BUFFERS, "wrong number of buffers");
        int bodyStart = ENVELOPE_BYTES + metadataBytes;
        int bodyBytes = frame.remaining() - bodyStart;
        require(message.bodyLength() == bodyBytes, "body length does not match");
        require(header.length() >= 0 && header.length() <= bodyBytes, "impossible number of rows");
        int rows = (int) header.length();
        for (int i = 0; i < COLUMNS; i++) {
            require(
                    header.nodes(i).length() == rows && header.nodes(i).nullCount() == 0,
                    "column of another length, or nulls");
        }
        return decodeBody(frame, header, bodyStart, bodyBytes, rows);
    }

    private static EntryBatch decodeBody(
            ByteBuffer frame, RecordBatch header, int bodyStart, int bodyBytes, int rows)
            throws IOException {
        int[] starts = new int[BUFFERS];
        int[] sizes = new int[BUFFERS];
        for (int i = 0; i < BUFFERS; i++) {
            Buffer buffer = header.buffers(i);
            require(
                    buffer.offset() >= 0
                            && buffer.length() >= 0
                            && buffer.offset() <= bodyBytes
                            && buffer.length() <= bodyBytes - buffer.offset(),
                    "buffer outside of the body");
            starts[i] = bodyStart + (int) buffer.offset();
            sizes[i] = (int) buffer.length();
        }
        require(
                sizes[STATE_DATA] >= 2 * rows
                        && sizes[GROUP_DATA] >= 2 * rows
                        && sizes[OP_DATA] >= rows
                        && (rows == 0 || sizes[KEY_OFFSETS] >= 4 * (rows + 1))
                        && (rows == 0 || sizes[VALUE_OFFSETS] >= 4 * (rows + 1)),
                "buffer too small");
        byte[] keys = copy(frame, starts[KEY_DATA], sizes[KEY_DATA]);
        byte[] values = copy(frame, starts[VALUE_DATA], sizes[VALUE_DATA]);
        EntryBatch batch = new EntryBatch(rows, keys.length, values.length);
        int keyStart = 0;
        int valueStart = 0;
        for (int i = 0; i < rows; i++) {
            int keyEnd = frame.getInt(starts[KEY_OFFSETS] + 4 * (i + 1));
            int valueEnd = frame.getInt(starts[VALUE_OFFSETS] + 4 * (i + 1));
            require(
                    keyEnd >= keyStart
                            && keyEnd <= keys.length
                            && valueEnd >= valueStart
                            && valueEnd <= values.length,
                    "offsets that do not ascend within the data");
            batch.add(
                    frame.getShort(starts[STATE_DATA] + 2 * i) & 0xFFFF,
                    frame.getShort(starts[GROUP_DATA] + 2 * i) & 0xFFFF,
                    frame.get(starts[OP_DATA] + i),
                    keys,
                    keyStart,
                    keyEnd - keyStart,
                    values,
                    valueStart,
                    valueEnd - valueStart);
            keyStart = keyEnd;
            valueStart = valueEnd;
        }
        return batch;
    }

    private static byte[] copy(ByteBuffer frame, int start, int size) {
        byte[] bytes = new byte[size];
        ByteBuffer from = frame.duplicate();
        from.position(start);
        from.get(bytes);
        return bytes;
    }

    private static void require(boolean ok, String problem) throws IOException {
        if (!ok) {
            throw new IOException("invalid Arrow frame: " + problem);
        }
    }
}
