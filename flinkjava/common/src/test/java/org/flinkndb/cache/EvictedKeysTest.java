package org.flinkndb.cache;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** What is remembered of evicted keys counts as cached, and goes when it takes too much. */
class EvictedKeysTest {
    private static final long TOTAL = 1 << 20;
    private static final int ENTRY_BYTES = 1000;
    private static final int FEW = 5_000;
    private static final int MANY = 200_000; // whose filter does not fit in

    private final CacheBudget budget = new CacheBudget(TOTAL);
    private final CacheBudget.Account account = budget.open(() -> {});
    private final WriteBehind writeBehind =
            new WriteBehind(null, 1, 1, Long.MAX_VALUE, FlushListener.none());

    @AfterEach
    void close() {
        writeBehind.close();
    }

    /** A cache of rows that are all in the store. */
    private static final class Rows
            extends EntryCache<Integer, Integer, CacheEntry<Integer, Integer>> {
        private int timesUnknown;

        private Rows(WriteBehind writeBehind, CacheBudget.Account account, boolean storeUnknown) {
            super(writeBehind, account, storeUnknown);
        }

        private void insert(int key) throws Exception {
            insert(new CacheEntry<>(key, 0, hash(key, 0), 0) {}, ENTRY_BYTES);
        }

        private boolean saysAbsent(int key) {
            return peek(key, 0) == null && knownAbsent(hash(key, 0));
        }

        @Override
        protected void write(CacheEntry<Integer, Integer> entry, WriteSink sink, boolean byTask) {}

        @Override
        protected boolean mayBeStored(CacheEntry<Integer, Integer> entry) {
            return true;
        }

        @Override
        protected void storeBecameUnknown() {
            timesUnknown++;
        }
    }

    private Rows rows(boolean storeUnknown) {
        return new Rows(writeBehind, account, storeUnknown);
    }

    /** Bytes that the account was charged for something else than entries. */
    private long filterBytes(Rows rows) {
        return account.usedBytes() - rows.cachedBytes();
    }

    private static int countSaidAbsent(Rows rows, int first, int end) {
        int absent = 0;
        for (int key = first; key < end; key++) {
            absent += rows.saysAbsent(key) ? 1 : 0;
        }
        return absent;
    }

    @Test
    void evictedKeysAreCharged() throws Exception {
        Rows rows = rows(false);
        for (int key = 0; key < FEW; key++) {
            rows.insert(key);
        }
        assertThat(filterBytes(rows)).isBetween(FEW * 9L / 10, TOTAL / 8);
        assertThat(countSaidAbsent(rows, 0, FEW)).isZero();
        assertThat(countSaidAbsent(rows, FEW, 2 * FEW)).isGreaterThan(FEW * 9 / 10);
    }

    @Test
    void tooManyEvictedKeysAreForgotten() throws Exception {
        Rows rows = rows(false);
        for (int key = 0; key < MANY; key++) {
            rows.insert(key);
            assertThat(filterBytes(rows)).isBetween(0L, TOTAL / 8);
            assertThat(account.usedBytes()).isLessThanOrEqualTo(TOTAL + TOTAL / 8);
        }
        assertThat(rows.timesUnknown).isEqualTo(1);
        assertThat(filterBytes(rows)).as("nothing to remember where all is unknown").isZero();
        assertThat(rows.mayHaveUncached()).isTrue();
        assertThat(countSaidAbsent(rows, 0, 2 * MANY)).as("the server is asked").isZero();
    }

    @Test
    void keysThatWereReadTakeThePlaceOfForgottenOnes() throws Exception {
        Rows rows = rows(false);
        for (int key = 0; rows.timesUnknown == 0; key++) {
            rows.insert(key);
        }
        rows.beginReadingKeys();
        AbsenceFilter read = new AbsenceFilter();
        for (int key = 0; key < FEW; key++) { // the others were removed from the store
            read.add(Rows.hash(key, 0));
        }
        for (int key = MANY; key < MANY + FEW; key++) { // written behind the reader's back
            rows.insert(key);
        }
        long evictedMeanwhile = filterBytes(rows);
        assertThat(evictedMeanwhile).isPositive();
        rows.storeHoldsOnly(read);
        assertThat(filterBytes(rows)).isEqualTo(evictedMeanwhile + read.bytes());
        assertThat(countSaidAbsent(rows, 0, FEW)).isZero();
        assertThat(countSaidAbsent(rows, MANY, MANY + FEW)).isZero();
        assertThat(countSaidAbsent(rows, FEW, 2 * FEW)).isGreaterThan(FEW * 9 / 10);

        for (int key = 2 * MANY; rows.timesUnknown == 1; key++) {
            rows.insert(key);
        }
        assertThat(filterBytes(rows)).as("neither is left").isZero();
        assertThat(countSaidAbsent(rows, 0, 2 * MANY)).isZero();
    }

    @Test
    void keysThatWereNotReadLeaveTheStoreUnknown() throws Exception {
        Rows rows = rows(true);
        for (int key = 0; key < FEW; key++) {
            rows.insert(key);
        }
        assertThat(filterBytes(rows)).isZero();
        rows.beginReadingKeys();
        for (int key = FEW; key < 2 * FEW; key++) {
            rows.insert(key);
        }
        assertThat(filterBytes(rows)).isPositive();
        rows.keysNotRead();
        assertThat(filterBytes(rows)).isZero();
        assertThat(countSaidAbsent(rows, 0, 3 * FEW)).isZero();
    }

    @Test
    void aClosedAccountGivesTheFilterBack() throws Exception {
        CacheBudget.Account other = budget.open(() -> {});
        Rows rows = rows(false);
        for (int key = 0; key < 4 * FEW; key++) {
            rows.insert(key);
        }
        assertThat(other.limit()).isLessThan(TOTAL * 3 / 4);
        account.close();
        assertThat(other.limit()).isEqualTo(TOTAL);
    }
}
