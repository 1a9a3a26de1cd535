package org.flinkndb.state;

import static org.assertj.core.api.Assertions.assertThat;

import org.flinkndb.client.ScanPage;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** Clean-up does a bounded amount of work at each access. */
class CleanupVisitorTest {
    private static final int CHUNK = 5;
    private static final int ADDRESSES = 1000;

    private final Map<Integer, String> cached = new HashMap<>();
    private final List<Integer> looked = new ArrayList<>();

    @Test
    void looksAtFewAddressesAlsoWhenNothingIsThere() {
        CleanupVisitor<Integer, String, String> visitor = visitor();
        for (int seen = CHUNK; seen <= ADDRESSES; seen += CHUNK) {
            assertThat(visitor.hasNext()).as("more after %d addresses", seen - CHUNK).isTrue();
            assertThat(visitor.nextEntries()).as("entries").isEmpty();
            assertThat(looked).as("looks").hasSize(seen);
        }
        assertThat(visitor.hasNext()).as("more").isFalse();
    }

    @Test
    void handsOutWhatIsThere() {
        cached.put(1, "a");
        cached.put(3, "b");
        cached.put(CHUNK, "c");
        CleanupVisitor<Integer, String, String> visitor = visitor();
        assertThat(visitor.nextEntries()).extracting("state").containsExactly("a", "b");
        assertThat(visitor.nextEntries()).extracting("state").containsExactly("c");
    }

    @Test
    void aPassBeginsAfterAsManyAccessesAsThereAreEntries() {
        CleanupPace pace = new CleanupPace();
        assertThat(pace.mayBegin(ADDRESSES)).as("first").isTrue();
        for (int i = 0; i < ADDRESSES; i++) {
            assertThat(pace.mayBegin(ADDRESSES)).as("after %d accesses", i).isFalse();
        }
        assertThat(pace.mayBegin(ADDRESSES)).as("second").isTrue();
    }

    private CleanupVisitor<Integer, String, String> visitor() {
        List<CleanupVisitor.Address<Integer, String>> addresses = new ArrayList<>();
        for (int i = 0; i < ADDRESSES; i++) {
            addresses.add(new CleanupVisitor.Address<>(i, ""));
        }
        return new CleanupVisitor<>(
                new Cached(), addresses, new CleanupScan<>(new NothingStored()), CHUNK);
    }

    private final class Cached implements CleanupVisitor.Access<Integer, String, String> {
        @Override
        public String cached(Integer key, String namespace) {
            looked.add(key);
            return cached.get(key);
        }

        @Override
        public void retain(Integer key, String namespace, String value) {
            throw new AssertionError("nothing has expired");
        }
    }

    /** A store of which nothing is asked. */
    private static final class NothingStored
            implements CleanupScan.Source<Integer, String, String> {
        @Override
        public boolean mayHaveUncached() {
            return false;
        }

        @Override
        public CompletableFuture<ScanPage> ask(int afterGroup, byte[] afterKey) {
            throw new AssertionError("everything is cached");
        }

        @Override
        public StoredRow<Integer, String, String> row(ScanPage page, int i) {
            throw new AssertionError("no page was asked for");
        }

        @Override
        public void retain(StoredRow<Integer, String, String> row, String value) {
            throw new AssertionError("no row was looked at");
        }

        @Override
        public boolean isNothing(String value) {
            return value == null;
        }

        @Override
        public boolean remove(ScanPage page, BitSet rows) {
            throw new AssertionError("no page was asked for");
        }

        @Override
        public void done() {}

        @Override
        public <X> X await(CompletableFuture<X> answered) {
            throw new AssertionError("no page was asked for");
        }
    }
}
