package org.flinkndb.client;

import org.flinkndb.proto.v1.ClientFrame;
import org.flinkndb.proto.v1.Read;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Frames that have no answer yet, in the order in which they were handed over: writes until they are
 * durable, requests until they are answered. Also those among them that are still to be sent: only so
 * many writes are on the way to the server that it is never idle, so that a read which need not wait
 * for them is not held up by them in the connection either. Guarded by the session's lock.
 */
final class Outstanding {
    /**
     * Bytes of writes that are sent and not applied: one batch that is worked on, one that is there. The
     * server takes as much without keeping what follows waiting.
     */
    private static final long ON_THE_WAY_BYTES = 2 << 20;

    /** The same in frames. */
    private static final int ON_THE_WAY = 32;

    /** Keyed by order of handing over; removal keeps the order of the others. */
    private final Map<Long, Item> items = new LinkedHashMap<>();

    private final Map<Long, Long> requestKeys = new LinkedHashMap<>();
    private final Map<Long, Long> writeKeys = new LinkedHashMap<>();
    private long nextKey;
    private long writeBytes;
    private long durableSeq;

    private final ArrayDeque<Item> unsent = new ArrayDeque<>();
    private final ArrayDeque<Item> onTheWay = new ArrayDeque<>(); // writes
    private long onTheWayBytes;

    private final RecentWrites recentWrites = new RecentWrites();

    private static final class Item {
        private final ClientFrame frame;
        private final long seq; // 0 = not a write
        private final long bytes;
        private final RecentWrites.Rows rows; // of a write
        private final Request<?> request;

        private Item(
                ClientFrame frame,
                long seq,
                long bytes,
                RecentWrites.Rows rows,
                Request<?> request) {
            this.frame = frame;
            this.seq = seq;
            this.bytes = bytes;
            this.rows = rows;
            this.request = request;
        }

        /** The same request, which overtakes nothing. */
        private Item inTurn() {
            if (!frame.getRead().getOvertakes()) {
                return this;
            }
            Read read = frame.getRead().toBuilder().clearOvertakes().build();
            return new Item(ClientFrame.newBuilder().setRead(read).build(), 0, 0, null, request);
        }
    }

    /** Adds a write, to be sent in its turn. */
    void addWrite(long seq, ClientFrame frame, RecentWrites.Rows rows, long bytes) {
        Item item = new Item(frame, seq, bytes, rows, null);
        writeKeys.put(seq, nextKey);
        items.put(nextKey++, item);
        writeBytes += bytes;
        unsent.add(item);
        recentWrites.note(seq, rows);
    }

    /** Adds a request, to be sent in its turn. */
    void addRequest(long id, ClientFrame frame, Request<?> request) {
        unsent.add(add(id, frame, request));
    }

    /** Adds a request that is sent at once, before what waits for its turn. */
    void addSent(long id, ClientFrame frame, Request<?> request) {
        add(id, frame, request);
    }

    private Item add(long id, ClientFrame frame, Request<?> request) {
        Item item = new Item(frame, 0, 0, null, request);
        requestKeys.put(id, nextKey);
        items.put(nextKey++, item);
        return item;
    }

    /** Adds a frame without an answer, to be sent in its turn; it is lost with the stream. */
    void addNotice(ClientFrame frame) {
        unsent.add(new Item(frame, 0, 0, null, null));
    }

    /** Whether rows may be changed by a write that is not known to be applied. */
    boolean mayChange(RecentWrites.Rows rows) {
        return recentWrites.mayChange(rows);
    }

    /** Gives, in order, what can be sent now. */
    void sendNext(Consumer<ClientFrame> action) {
        while (!unsent.isEmpty() && hasRoom(unsent.peek())) {
            Item item = unsent.poll();
            if (item.seq > 0) {
                onTheWay.add(item);
                onTheWayBytes += item.bytes;
            }
            action.accept(item.frame);
        }
    }

    private boolean hasRoom(Item item) {
        return item.seq == 0
                || onTheWay.isEmpty()
                || onTheWay.size() < ON_THE_WAY && onTheWayBytes + item.bytes <= ON_THE_WAY_BYTES;
    }

    /** Bytes of writes that are not durable. */
    long writeBytes() {
        return writeBytes;
    }

    /** Writes up to a seq are applied. */
    void applied(long seq) {
        recentWrites.applied(seq);
        while (!onTheWay.isEmpty() && onTheWay.peek().seq <= seq) {
            onTheWayBytes -= onTheWay.poll().bytes;
        }
    }

    /** Writes up to a seq are durable. */
    void durable(long seq) {
        durableSeq = Math.max(durableSeq, seq);
        applied(seq);
        Iterator<Map.Entry<Long, Long>> oldest = writeKeys.entrySet().iterator();
        while (oldest.hasNext()) {
            Map.Entry<Long, Long> write = oldest.next();
            if (write.getKey() > seq) {
                return;
            }
            writeBytes -= items.remove(write.getValue()).bytes;
            oldest.remove();
        }
    }

    /** The highest seq that was acknowledged as durable. */
    long durableSeq() {
        return durableSeq;
    }

    Request<?> request(long id) {
        Long key = requestKeys.get(id);
        return key == null ? null : items.get(key).request;
    }

    void remove(long id) {
        items.remove(requestKeys.remove(id));
    }

    /**
     * Starts again on a new stream, at a server that has applied writes up to a seq, maybe fewer than
     * the one before had: requests and the other writes will be sent in their order.
     */
    void restart(long serverApplied) {
        unsent.clear();
        onTheWay.clear();
        onTheWayBytes = 0;
        recentWrites.restart(serverApplied);
        for (Item item : items.values()) {
            if (item.request != null) {
                unsent.add(item.inTurn());
            } else if (item.seq > serverApplied) {
                unsent.add(item);
                recentWrites.note(item.seq, item.rows);
            }
        }
    }

    /** Forgets parts of answers: the requests will be asked again. */
    void restartAnswers() {
        for (Item item : items.values()) {
            if (item.request != null) {
                item.request.restart();
            }
        }
    }

    /** Takes all requests out. */
    List<Request<?>> takeRequests() {
        List<Request<?>> requests = new ArrayList<>();
        for (Long key : requestKeys.values()) {
            requests.add(items.remove(key).request);
        }
        requestKeys.clear();
        unsent.removeIf(item -> item.request != null);
        return requests;
    }
}
