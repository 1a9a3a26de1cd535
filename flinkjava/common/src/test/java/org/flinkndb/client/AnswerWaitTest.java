package org.flinkndb.client;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

@Timeout(30)
class AnswerWaitTest {
    private static final Duration LONG = Duration.ofHours(1);

    @Test
    void returnsAnswersWhetherTheyAreThereOrComeLater() throws Exception {
        for (Duration spin : new Duration[] {Duration.ZERO, Duration.ofNanos(1), LONG}) {
            AnswerWait wait = new AnswerWait(spin);
            for (int i = 0; i < 200; i++) {
                int answer = i;
                CompletableFuture<Integer> later =
                        i % 2 == 0
                                ? CompletableFuture.completedFuture(answer)
                                : CompletableFuture.supplyAsync(() -> answer);
                assertThat(wait.await(later)).isEqualTo(answer);
            }
        }
    }

    @Test
    void passesFailuresOn() {
        CompletableFuture<Void> failed =
                CompletableFuture.failedFuture(new IllegalStateException());
        assertThatThrownBy(() -> new AnswerWait(LONG).await(failed))
                .isInstanceOf(ExecutionException.class)
                .hasCauseInstanceOf(IllegalStateException.class);
    }

    @Test
    void endsWhenInterrupted() throws Exception {
        CompletableFuture<Throwable> outcome = new CompletableFuture<>();
        Thread waiting =
                new Thread(
                        () -> {
                            try {
                                new AnswerWait(LONG).await(new CompletableFuture<Void>());
                            } catch (Throwable e) {
                                outcome.complete(e);
                            }
                        });
        waiting.start();
        waiting.interrupt();
        assertThat(outcome.get()).isInstanceOf(InterruptedException.class);
        waiting.join();
    }

    @Test
    void learnsToSleepAtOnceWhereAnswersTakeLong() throws Exception {
        Duration spin = Duration.ofMillis(50);
        AnswerWait wait = new AnswerWait(spin);
        for (int i = 0; i < 4; i++) {
            awaitSlowAnswer(wait);
        }
        int waits = 40;
        long begin = System.nanoTime();
        for (int i = 0; i < waits; i++) {
            awaitSlowAnswer(wait);
        }
        assertThat(Duration.ofNanos(System.nanoTime() - begin))
                .isLessThan(spin.multipliedBy(waits / 2));
    }

    private static void awaitSlowAnswer(AnswerWait wait) throws Exception {
        CompletableFuture<Integer> slow = new CompletableFuture<>();
        Thread answering = answerOnceAsleep(slow);
        assertThat(wait.await(slow)).isEqualTo(1);
        answering.join();
    }

    /** Answers when the calling thread has gone to sleep. */
    private static Thread answerOnceAsleep(CompletableFuture<Integer> answer) {
        Thread waiting = Thread.currentThread();
        Thread thread =
                new Thread(
                        () -> {
                            while (waiting.getState() != Thread.State.WAITING) {
                                Thread.onSpinWait();
                            }
                            answer.complete(1);
                        });
        thread.start();
        return thread;
    }
}
