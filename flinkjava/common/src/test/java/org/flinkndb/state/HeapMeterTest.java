package org.flinkndb.state;

import static org.assertj.core.api.Assertions.assertThat;

import com.sun.management.ThreadMXBean;

import org.apache.flink.api.common.state.State;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.core.memory.MemorySegmentFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

import java.lang.management.ManagementFactory;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;

/** What the meter says is what the virtual machine allocates, and what is shared is not counted. */
class HeapMeterTest {
    private static final int VALUES = 20_000;

    private static final byte[] LETTERS = new byte[100];

    private final HeapMeter meter = new HeapMeter();

    /** A class of a user's job. */
    private static final class Account {
        private final TimeUnit unit = TimeUnit.SECONDS;
        private final Class<?> type = Account.class;
        private long balance = ThreadLocalRandom.current().nextLong();
        private String owner = word(20);
        private boolean open;
        private Account parent;
    }

    /** A new string; nothing else is allocated. */
    private static String word(int length) {
        return new String(LETTERS, 0, length, StandardCharsets.ISO_8859_1);
    }

    @Test
    void arraysAndRows() {
        isAllocated(0.01, () -> new byte[1_000]);
        isAllocated(0.01, () -> new long[7]);
        // A row of Flink SQL holds its bytes in such a segment.
        isAllocated(0.15, () -> MemorySegmentFactory.wrap(new byte[100]));
    }

    @Test
    void objects() {
        isAllocated(0.15, () -> Tuple3.of(1_000_000L + VALUES, word(9), 0.5));
        isAllocated(0.15, () -> BigDecimal.valueOf(12_345_678_901L, 2));
        isAllocated(0.05, Account::new); // without the unit and the class
    }

    @Test
    void collections() {
        isAllocated(
                0.15,
                () -> {
                    List<String> list = new ArrayList<>(50);
                    for (int i = 0; i < 50; i++) {
                        list.add(word(4));
                    }
                    return list;
                });
        isAllocated(
                0.35,
                () -> {
                    Map<Long, Double> map = new HashMap<>(200);
                    for (long i = 0; i < 100; i++) {
                        map.put(i << 20, 0.5 * i);
                    }
                    return map;
                });
    }

    @Test
    void eachObjectOnce() {
        Account account = new Account();
        long alone = meter.measure(account);
        account.parent = account;
        assertThat(meter.measure(account)).isEqualTo(alone);
        assertThat(meter.measure(Arrays.asList(account, account))).isBetween(alone, alone + 64);
    }

    @Test
    void largeGraphsAreNotWalkedThrough() {
        List<Account> accounts = new ArrayList<>();
        for (int i = 0; i < 10_000; i++) {
            accounts.add(new Account());
        }
        assertThat(meter.measure(accounts)).isEqualTo(-1);
        assertThat(meter.measure(new Object[100_000])).isPositive(); // null everywhere
    }

    /** As rows of SQL do in views of their accumulators. */
    @Test
    void statesThatAValueRefersToAreNotCounted() {
        Accumulator accumulator = new Accumulator();
        long alone = meter.measure(accumulator);
        accumulator.state = new HoldingState();
        assertThat(meter.measure(accumulator)).isEqualTo(alone);
    }

    private static final class Accumulator {
        private State state;
    }

    private static final class HoldingState implements State {
        private final byte[] held = new byte[1000];

        @Override
        public void clear() {
            Arrays.fill(held, (byte) 0);
        }
    }

    /** What threads of a job share may change at any moment; the job must not fail of it. */
    @Test
    @Timeout(60)
    void aMapThatChangesIsNotMeasured() throws Exception {
        Map<Integer, String> shared = new HashMap<>();
        AtomicBoolean ended = new AtomicBoolean();
        Thread other =
                new Thread(
                        () -> {
                            for (int i = 0; !ended.get(); i++) {
                                shared.put(i % 500, "text");
                                shared.remove((i + 250) % 500);
                            }
                        });
        other.start();
        try {
            while (meter.measure(shared) >= 0) {
                Thread.onSpinWait();
            }
        } finally {
            ended.set(true);
            other.join();
        }
    }

    /** Compares the sum for many values with what the thread allocated for them. */
    private void isAllocated(double tolerance, Supplier<Object> maker) {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        Object[] values = new Object[VALUES];
        for (int i = 0; i < VALUES; i++) {
            values[i] = maker.get(); // compiled, so that what does not escape is not allocated
        }
        long before = threads.getThreadAllocatedBytes(Thread.currentThread().getId());
        for (int i = 0; i < VALUES; i++) {
            values[i] = maker.get();
        }
        long allocated = threads.getThreadAllocatedBytes(Thread.currentThread().getId()) - before;
        long measured = 0;
        for (Object value : values) {
            measured += meter.measure(value);
        }
        assertThat((double) measured / allocated).isBetween(1 - tolerance, 1 + tolerance);
    }
}
