package org.flinkndb.state;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.runtime.state.StateEntry;
import org.junit.jupiter.api.Test;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

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
        List<Address<Integer, String>> addresses = new ArrayList<>();
        for (int i = 0; i < ADDRESSES; i++) {
            addresses.add(new Address<>(i, ""));
        }
        return new CleanupVisitor<>(new Cached(), addresses, new NothingStored(), CHUNK);
    }

    private final class Cached implements CleanupVisitor.Access<Integer, String, String> {
        @Override
        public List<String> cached(Integer key, String namespace) {
            looked.add(key);
            return cached.containsKey(key) ? List.of(cached.get(key)) : List.of();
        }

        @Override
        public void retain(StateEntry<Integer, String, String> looked, String left) {
            throw new AssertionError("nothing has expired");
        }
    }

    /** Everything is cached. */
    private static final class NothingStored
            implements CleanupVisitor.Stored<Integer, String, String> {
        @Override
        public boolean hasNext() {
            return false;
        }

        @Override
        public List<StateEntry<Integer, String, String>> nextEntries(int rows) {
            throw new AssertionError("only what is cached is to be looked at");
        }

        @Override
        public void update(StoredRow<Integer, String, String> row, String value) {
            throw new AssertionError("no row was looked at");
        }
    }
}
