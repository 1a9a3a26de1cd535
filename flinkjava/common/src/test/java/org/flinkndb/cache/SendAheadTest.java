package org.flinkndb.cache;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class SendAheadTest {
    private static final long MAX = 16_000;
    private static final long ENOUGH = 1_000;

    private final SendAhead ahead = new SendAhead(MAX);
    private long stage = 1;

    @Test
    void waitsUntilItIsWorthIt() {
        assertThat(ahead.worthIt(ENOUGH - 1)).isFalse();
        assertThat(ahead.worthIt(ENOUGH)).isTrue();
    }

    @Test
    void goesOnWhileEntriesStayAsTheyWereSent() {
        for (int epoch = 0; epoch < 10; epoch++) {
            for (int i = 0; i < 5; i++) {
                assertThat(ahead.worthIt(ENOUGH)).isTrue();
                send();
                ahead.noteChangedAgain(stage - 1, ENOUGH / 5); // some do change
            }
            ahead.nextEpoch(++stage);
        }
    }

    @Test
    void stopsWhenEntriesChangeAgainAndTriesLessAndLessOften() {
        int tries = 0;
        for (int epoch = 0; epoch < 100; epoch++) {
            if (ahead.worthIt(ENOUGH)) {
                tries++;
                send();
                ahead.noteChangedAgain(stage - 1, ENOUGH / 2);
                assertThat(ahead.worthIt(MAX)).isFalse();
            }
            ahead.nextEpoch(++stage);
        }
        assertThat(tries).isBetween(3, 15);
        send();
        ahead.nextEpoch(++stage);
        for (int epoch = 0; !ahead.worthIt(ENOUGH); epoch++) {
            assertThat(epoch).isLessThan(20);
            ahead.nextEpoch(++stage);
        }
    }

    @Test
    void whatAnEarlierEpochTookDoesNotCount() {
        long earlier = stage;
        ahead.nextEpoch(++stage);
        send();
        ahead.noteChangedAgain(earlier, MAX);
        assertThat(ahead.worthIt(ENOUGH)).isTrue();
    }

    @Test
    void looksLessOftenWhereLittleIsLeftAlone() {
        int looks = 0;
        long fresh = 0;
        for (int i = 0; i < MAX; i++) {
            fresh++;
            if (ahead.worthIt(fresh)) {
                looks++;
                fresh = 0;
                ahead.noteSent(ENOUGH / 10);
            }
        }
        assertThat(looks).isBetween(2, 5);
        ahead.nextEpoch(++stage);
        assertThat(ahead.worthIt(ENOUGH)).isTrue();
    }

    private void send() {
        ahead.noteSent(ENOUGH);
        stage++;
    }
}
