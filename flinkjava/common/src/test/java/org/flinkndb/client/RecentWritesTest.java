package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;

class RecentWritesTest {
    private static RecentWrites.Rows rows(byte op, int... keys) {
        EntryBatch rows = new EntryBatch();
        for (int key : keys) {
            byte[] bytes = ("key-" + key).getBytes(StandardCharsets.UTF_8);
            rows.add(key % 3, 0, op, bytes, new byte[0]);
        }
        return RecentWrites.Rows.of(rows);
    }

    private static boolean mayChange(RecentWrites writes, int key) {
        return writes.mayChange(rows(EntryBatch.OP_NONE, key));
    }

    /** Compares with a map of each row's newest write; so many rows that the table grows. */
    @Test
    void overlooksNothingAndIsSeldomWrong() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        RecentWrites writes = new RecentWrites();
        Map<Integer, Long> newest = new HashMap<>();
        long applied = 0;
        int wrong = 0;
        int unchanged = 0;
        for (long seq = 1; seq <= 2000; seq++) {
            int[] keys = random.ints(random.nextInt(100) + 1, 0, 200_000).toArray();
            writes.note(seq, rows(EntryBatch.OP_PUT, keys));
            for (int key : keys) {
                newest.put(key, seq);
            }
            applied = Math.max(applied, seq - random.nextInt(200));
            writes.applied(applied);
            for (int i = 0; i < 20; i++) {
                int key = i % 2 == 0 ? keys[random.nextInt(keys.length)] : random.nextInt(200_000);
                boolean expected = newest.getOrDefault(key, 0L) > applied;
                boolean found = mayChange(writes, key);
                assertThat(found || !expected)
                        .as("seed %d, write %d, key %d", seed, seq, key)
                        .isTrue();
                unchanged += expected ? 0 : 1;
                wrong += found && !expected ? 1 : 0;
            }
        }
        assertThat(wrong).as("seed %d", seed).isLessThan(unchanged / 10);
    }

    @Test
    void aDeletedPrefixMayBeAnyRow() {
        RecentWrites writes = new RecentWrites();
        writes.note(5, rows(EntryBatch.OP_DELETE_PREFIX, 1));
        assertThat(mayChange(writes, 77)).isTrue();
        writes.applied(5);
        assertThat(mayChange(writes, 77)).isFalse();
    }

    @Test
    void afterARestartWhatCountsIsNotedAgain() {
        RecentWrites writes = new RecentWrites();
        writes.note(1, rows(EntryBatch.OP_PUT, 1));
        writes.applied(1);
        assertThat(mayChange(writes, 1)).isFalse();
        writes.restart(0);
        writes.note(1, rows(EntryBatch.OP_PUT, 1));
        assertThat(mayChange(writes, 1)).isTrue();
        assertThat(mayChange(writes, 2)).isFalse();
    }
}
