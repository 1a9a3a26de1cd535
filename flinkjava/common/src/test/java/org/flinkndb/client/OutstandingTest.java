package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;

import org.flinkndb.proto.v1.ClientFrame;
import org.flinkndb.proto.v1.Count;
import org.flinkndb.proto.v1.Heartbeat;
import org.flinkndb.proto.v1.Read;
import org.flinkndb.proto.v1.Write;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Which frames go out when. Writes are W and their number, requests R, notices N. */
class OutstandingTest {
    private static final int HALF = 1 << 20; // of what may be on the way

    private final Outstanding outstanding = new Outstanding();
    private long seq;

    private void write(String key, long bytes) {
        ClientFrame frame =
                ClientFrame.newBuilder().setWrite(Write.newBuilder().setSeq(++seq)).build();
        outstanding.addWrite(seq, frame, keys(key), bytes);
    }

    private void request(long id) {
        outstanding.addRequest(id, requestFrame(id), Request.count());
    }

    private static ClientFrame requestFrame(long id) {
        return ClientFrame.newBuilder().setCount(Count.newBuilder().setRequestId(id)).build();
    }

    private static RecentWrites.Rows keys(String key) {
        EntryBatch rows = new EntryBatch();
        rows.add(0, 0, EntryBatch.OP_PUT, key.getBytes(StandardCharsets.UTF_8), new byte[0]);
        return RecentWrites.Rows.of(rows);
    }

    private boolean mayChange(String key) {
        return outstanding.mayChange(keys(key));
    }

    private List<String> sent() {
        List<String> frames = new ArrayList<>();
        outstanding.sendNext(
                frame ->
                        frames.add(
                                frame.hasWrite()
                                        ? "W" + frame.getWrite().getSeq()
                                        : frame.hasCount()
                                                ? "R" + frame.getCount().getRequestId()
                                                : "N"));
        return frames;
    }

    @Test
    void writesWaitForRoomAndKeepTheirOrderWithRequests() {
        write("a", HALF);
        write("b", HALF);
        write("c", HALF);
        request(1);
        outstanding.addNotice(
                ClientFrame.newBuilder().setHeartbeat(Heartbeat.getDefaultInstance()).build());
        write("d", HALF);
        assertThat(sent()).containsExactly("W1", "W2");
        assertThat(sent()).isEmpty();
        outstanding.applied(1);
        assertThat(sent()).containsExactly("W3", "R1", "N");
        outstanding.durable(3); // says that they are applied as well
        assertThat(sent()).containsExactly("W4");
    }

    @Test
    void oneWriteIsSentHoweverLarge() {
        write("a", 100L * HALF);
        write("b", 1);
        assertThat(sent()).containsExactly("W1");
        outstanding.applied(1);
        assertThat(sent()).containsExactly("W2");
    }

    @Test
    void manySmallWritesWaitToo() {
        for (int i = 0; i < 100; i++) {
            write("a", 1);
        }
        assertThat(sent()).hasSize(32);
    }

    @Test
    void rowsOfUnappliedWritesMayChange() {
        write("a", 1);
        write("b", 1);
        sent();
        assertThat(mayChange("a")).isTrue();
        assertThat(mayChange("b")).isTrue();
        assertThat(mayChange("c")).isFalse();
        outstanding.applied(1);
        assertThat(mayChange("a")).isFalse();
        assertThat(mayChange("b")).isTrue();
    }

    @Test
    void whatOvertookTakesItsTurnOnAnotherStream() {
        Read read = Read.newBuilder().setRequestId(1).setOvertakes(true).build();
        ClientFrame frame = ClientFrame.newBuilder().setRead(read).build();
        outstanding.addSent(1, frame, Request.rows(1));
        assertThat(sent()).isEmpty();
        for (int stream = 0; stream < 2; stream++) {
            outstanding.restart(0);
            List<ClientFrame> again = new ArrayList<>();
            outstanding.sendNext(again::add);
            assertThat(again).hasSize(1);
            assertThat(again.get(0).getRead().getRequestId()).isEqualTo(1);
            assertThat(again.get(0).getRead().getOvertakes()).isFalse();
        }
    }

    /** The server was killed after it had applied all, and before all of it was durable. */
    @Test
    void aServerThatHasForgottenWritesGetsThemInOrder() {
        write("a", HALF);
        write("b", 1);
        request(1);
        assertThat(sent()).containsExactly("W1", "W2", "R1");
        outstanding.durable(1);
        outstanding.applied(2);
        outstanding.addSent(2, requestFrame(2), Request.count());
        write("c", HALF);
        write("d", HALF);
        assertThat(sent()).containsExactly("W3", "W4");
        outstanding.addNotice(
                ClientFrame.newBuilder().setHeartbeat(Heartbeat.getDefaultInstance()).build());
        outstanding.restart(1);
        assertThat(mayChange("a")).isFalse();
        assertThat(mayChange("b")).isTrue();
        assertThat(sent()).containsExactly("W2", "R1", "R2", "W3");
        outstanding.remove(1);
        outstanding.remove(2);
        outstanding.durable(3);
        assertThat(sent()).containsExactly("W4");
        outstanding.durable(4);
        assertThat(outstanding.writeBytes()).isZero();
        outstanding.restart(4);
        assertThat(sent()).isEmpty();
    }
}
