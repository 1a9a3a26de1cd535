package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;

import org.flinkndb.client.KeyGroupRows.Known;
import org.junit.jupiter.api.Test;

import java.nio.charset.StandardCharsets;
import java.util.BitSet;
import java.util.Random;
import java.util.TreeSet;

class KeyGroupRowsTest {
    private static final int FIRST = 3;
    private static final int LAST = 6;
    private static final byte[] OPS = {
        EntryBatch.OP_PUT, EntryBatch.OP_APPEND, EntryBatch.OP_DELETE, EntryBatch.OP_DELETE_PREFIX
    };

    /** What it says must be so, whatever is written; and now and then it learns what it does not know. */
    @Test
    void isNeverWrong() {
        long seed = System.nanoTime();
        Random random = new Random(seed);
        int[] said = new int[Known.values().length];
        for (int round = 0; round < 500; round++) {
            TreeSet<String> rows = new TreeSet<>();
            boolean startsEmpty = random.nextBoolean();
            if (!startsEmpty) {
                rows.add(row(random));
            }
            KeyGroupRows known = new KeyGroupRows(FIRST, LAST, startsEmpty);
            KeyGroupRows.View earlier = known.view();
            BitSet then = groupsOf(rows);
            for (int batch = 0; batch < 30; batch++) {
                known.note(write(random, rows));
                KeyGroupRows.View view = known.view();
                BitSet now = groupsOf(rows);
                check(seed, view, now, said);
                if (random.nextInt(4) == 0) { // the answer comes later
                    earlier.learn(then);
                    check(seed, earlier, then, said);
                    check(seed, known.view(), now, said);
                    earlier = view;
                    then = now;
                }
            }
        }
        assertThat(said).as("each was said").doesNotContain(0);
    }

    private static void check(long seed, KeyGroupRows.View view, BitSet now, int[] said) {
        for (int group = FIRST; group <= LAST; group++) {
            Known found = view.of(group);
            said[found.ordinal()]++;
            if (found != Known.NOTHING) {
                assertThat(found == Known.SOME).as("seed " + seed).isEqualTo(now.get(group));
            }
        }
    }

    /** Group, state, key of few letters: {@code "4/1/aab"}. */
    private static String row(Random random) {
        StringBuilder key = new StringBuilder();
        key.append(FIRST + random.nextInt(LAST - FIRST + 1)).append('/');
        key.append(random.nextInt(2)).append('/');
        for (int i = random.nextInt(3); i > 0; i--) {
            key.append((char) ('a' + random.nextInt(2)));
        }
        return key.toString();
    }

    private static BitSet groupsOf(TreeSet<String> rows) {
        BitSet groups = new BitSet();
        rows.forEach(row -> groups.set(row.charAt(0) - '0'));
        return groups;
    }

    private static EntryBatch write(Random random, TreeSet<String> rows) {
        EntryBatch batch = new EntryBatch();
        for (int i = random.nextInt(8); i > 0; i--) {
            String row = row(random);
            byte op = OPS[random.nextInt(OPS.length)];
            if (op == EntryBatch.OP_DELETE_PREFIX) {
                rows.removeIf(other -> other.startsWith(row));
            } else if (op == EntryBatch.OP_DELETE) {
                rows.remove(row);
            } else {
                rows.add(row);
            }
            batch.add(
                    row.charAt(2) - '0',
                    row.charAt(0) - '0',
                    op,
                    row.substring(4).getBytes(StandardCharsets.UTF_8));
        }
        return batch;
    }

    @Test
    void knowsWhileARowIsLeft() {
        KeyGroupRows known = new KeyGroupRows(FIRST, FIRST, true);
        assertThat(known.view().of(FIRST)).isEqualTo(Known.EMPTY);
        EntryBatch puts = new EntryBatch();
        puts.add(0, FIRST, EntryBatch.OP_PUT, new byte[] {1});
        puts.add(0, FIRST, EntryBatch.OP_PUT, new byte[] {2});
        puts.add(0, FIRST, EntryBatch.OP_DELETE, new byte[] {1});
        known.note(puts);
        assertThat(known.view().of(FIRST)).isEqualTo(Known.SOME);
        EntryBatch delete = new EntryBatch();
        delete.add(0, FIRST, EntryBatch.OP_DELETE, new byte[] {2});
        known.note(delete);
        KeyGroupRows.View view = known.view();
        assertThat(view.isComplete()).isFalse();
        view.learn(new BitSet());
        assertThat(view.isComplete()).isTrue();
        assertThat(known.view().of(FIRST)).isEqualTo(Known.EMPTY);
    }
}
