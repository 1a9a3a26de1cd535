package org.flinkndb.client;

import org.flinkndb.proto.v1.ClientFrame;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/**
 * Frames that have no answer yet, in the order in which they were sent: writes until they are
 * durable, requests until they are answered. Guarded by the session's lock.
 */
final class Outstanding {
    /** Keyed by order of sending; removal keeps the order of the others. */
    private final Map<Long, Item> items = new LinkedHashMap<>();

    private final Map<Long, Long> requestKeys = new LinkedHashMap<>();
    private final Map<Long, Long> writeKeys = new LinkedHashMap<>();
    private long nextKey;
    private long writeBytes;

    private static final class Item {
        private final ClientFrame frame;
        private final long seq;
        private final long bytes;
        private final Request<?> request;

        private Item(ClientFrame frame, long seq, long bytes, Request<?> request) {
            this.frame = frame;
            this.seq = seq;
            this.bytes = bytes;
            this.request = request;
        }
    }

    void addWrite(long seq, ClientFrame frame, long bytes) {
        writeKeys.put(seq, nextKey);
        items.put(nextKey++, new Item(frame, seq, bytes, null));
        writeBytes += bytes;
    }

    void addRequest(long id, ClientFrame frame, Request<?> request) {
        requestKeys.put(id, nextKey);
        items.put(nextKey++, new Item(frame, 0, 0, request));
    }

    /** Bytes of writes that are not durable. */
    long writeBytes() {
        return writeBytes;
    }

    /** Writes up to a seq are durable. */
    void durable(long seq) {
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

    Request<?> request(long id) {
        Long key = requestKeys.get(id);
        return key == null ? null : items.get(key).request;
    }

    void remove(long id) {
        items.remove(requestKeys.remove(id));
    }

    /** Gives, in order, the requests and those writes that the server has not applied. */
    void forEachUnapplied(long applied, Consumer<ClientFrame> action) {
        for (Item item : items.values()) {
            if (item.request != null || item.seq > applied) {
                action.accept(item.frame);
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
        return requests;
    }
}
