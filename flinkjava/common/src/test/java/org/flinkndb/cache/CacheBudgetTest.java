package org.flinkndb.cache;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

/** Backends share the cache by need, and give back when others come. */
class CacheBudgetTest {
    private static final long MIB = 1 << 20;
    private static final long TOTAL = 100 * MIB;

    private final CacheBudget budget = new CacheBudget(TOTAL);

    /** A cache that grows and lets go of whatever it is asked to. */
    private static final class Fake implements CacheBudget.Evictable {
        private final CacheBudget.Account account;
        private long bytes;

        private Fake(CacheBudget.Account account) {
            this.account = account;
            account.register(this);
        }

        /** What a cache does for each entry: makes room, then adds. */
        private void insert(long size) {
            if (account.isOver()) {
                account.makeRoom();
            }
            bytes += size;
            account.add(size);
        }

        @Override
        public long cachedBytes() {
            return bytes;
        }

        @Override
        public long evict(long goal) {
            long freed = Math.min(goal, bytes);
            bytes -= freed;
            account.add(-freed);
            return freed;
        }
    }

    private Fake open() {
        return new Fake(budget.open(() -> {}));
    }

    @Test
    void oneMayTakeWhatOthersLeave() {
        Fake idle = open();
        Fake busy = open();
        for (int i = 0; i < 1000; i++) {
            busy.insert(MIB);
            assertThat(busy.bytes).isLessThanOrEqualTo(TOTAL + MIB);
        }
        assertThat(busy.bytes).isGreaterThan(TOTAL * 8 / 10);
        assertThat(idle.bytes).isZero();
    }

    @Test
    void whoComesLaterGetsAnEqualShare() {
        Fake first = open();
        Fake second = open();
        for (int i = 0; i < 200; i++) {
            first.insert(MIB);
        }
        for (int i = 0; i < 2000; i++) { // both go on
            first.insert(MIB);
            second.insert(MIB);
            assertThat(first.bytes + second.bytes).isLessThanOrEqualTo(TOTAL * 3 / 2 + 2 * MIB);
        }
        assertThat(second.bytes).isBetween(TOTAL * 4 / 10, TOTAL * 6 / 10);
        assertThat(first.bytes + second.bytes).isLessThanOrEqualTo(TOTAL + 2 * MIB);
    }

    @Test
    void whoHasNothingToDoGivesBackAtBarriers() {
        Fake idle = open();
        Fake busy = open();
        for (int i = 0; i < 200; i++) {
            idle.insert(MIB);
        }
        for (int i = 0; i < 100; i++) {
            busy.insert(MIB / 2);
            idle.account.giveBack();
        }
        assertThat(idle.bytes + busy.bytes).isLessThanOrEqualTo(TOTAL + MIB);
        assertThat(busy.bytes).isGreaterThan(TOTAL * 4 / 10);
    }

    @Test
    void aClosedAccountLeavesEverythingToOthers() {
        Fake first = open();
        Fake second = open();
        for (int i = 0; i < 100; i++) {
            first.insert(MIB);
        }
        first.account.close();
        first.account.close(); // again, and nothing happens
        first.account.add(50 * MIB); // a late change counts for nobody
        for (int i = 0; i < 200; i++) {
            second.insert(MIB);
        }
        assertThat(second.bytes).isGreaterThan(TOTAL * 8 / 10);
    }
}
