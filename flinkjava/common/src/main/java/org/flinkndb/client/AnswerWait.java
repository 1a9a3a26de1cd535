package org.flinkndb.client;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * Waits for answers of the server. Putting a thread to sleep and waking it costs more than all the work
 * for a small read where processors fall asleep in between (25 µs on a virtual machine; a read has
 * five such changes). So the thread stays awake for a moment, and lets any other that wants to run go
 * first. Answers that take longer than that teach it to go to sleep at once; now and then it tries
 * again. Thread-safe: what it has learnt may be a little off.
 */
final class AnswerWait {
    /** So many answers in a row that took long are not chance. */
    private static final int SLOW = 4;

    /** When answers take long, one wait of so many stays awake for a moment. */
    private static final int TRY_AGAIN = 64;

    private final long maxSpinNanos;
    private volatile int slowAnswers; // in a row
    private int sleeps;

    /**
     * @param maxSpin how long a thread may stay awake for one answer; zero = not at all
     */
    AnswerWait(Duration maxSpin) {
        maxSpinNanos = maxSpin.toNanos();
    }

    <T> T await(CompletableFuture<T> answer) throws ExecutionException, InterruptedException {
        if (maxSpinNanos > 0 && !answer.isDone() && worthIt()) {
            slowAnswers = spin(answer) ? 0 : Math.min(SLOW, slowAnswers + 1);
        }
        return answer.get();
    }

    private boolean worthIt() {
        return slowAnswers < SLOW || ++sleeps % TRY_AGAIN == 0;
    }

    /** Whether the answer came while the thread stayed awake, or it was interrupted. */
    private boolean spin(CompletableFuture<?> answer) {
        long begin = System.nanoTime();
        do {
            if (Thread.currentThread().isInterrupted()) {
                return true; // says nothing about the server
            }
            Thread.yield();
            if (answer.isDone()) {
                return true;
            }
        } while (System.nanoTime() - begin < maxSpinNanos);
        return false;
    }
}
