package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.List;

/**
 * More keys are evicted than the cache may remember. It forgets them, learns from the server which keys
 * are left, and forgets again; what is read must be right at any time.
 */
class ManyEvictedKeysTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final MemorySize CACHE = MemorySize.parse("256kb");

    /** Of each round; about 12,000 evicted keys are remembered. */
    private static final int KEYS = 15_000;

    /** Few enough keys stay for a filter of them. */
    private static final int EACH_STAYS = 10;

    private static final int ROUNDS = 2;

    private AbstractKeyedStateBackend<Long> backend;
    private ValueState<Long> value;
    private ListState<Long> list;

    @Test
    void readsAreRight() throws Exception {
        backend = SuiteBackends.openEmpty(SERVER, CACHE, TtlTimeProvider.DEFAULT);
        value = state(new ValueStateDescriptor<>("value", Types.LONG));
        list = state(new ListStateDescriptor<>("list", Types.LONG));
        for (int round = 0; round < ROUNDS; round++) {
            long first = (long) round * KEYS;
            for (long key = first; key < first + KEYS; key++) {
                backend.setCurrentKey(key);
                value.update(key);
                list.add(key);
            }
            TestBackends.handleOf(TestBackends.checkpoint(backend, round + 1));
            for (long key = first; key < first + KEYS; key++) {
                if (key % EACH_STAYS != 0) {
                    backend.setCurrentKey(key);
                    value.clear();
                    list.clear();
                }
            }
            verify(first + KEYS);
        }
        backend.close();
        backend.dispose();
    }

    /** Asks for keys that stay, that were removed, and that never were. */
    private void verify(long end) throws Exception {
        for (long key = 0; key < end; key += EACH_STAYS / 2) {
            verifyKey(key, key % EACH_STAYS == 0);
        }
        for (long key = end; key < end + KEYS / EACH_STAYS; key++) {
            verifyKey(-key, false);
        }
    }

    private void verifyKey(long key, boolean there) throws Exception {
        backend.setCurrentKey(key);
        assertThat(value.value()).isEqualTo(there ? key : null);
        assertThat(list.get()).isEqualTo(there ? List.of(key) : null);
    }

    private <S extends State> S state(StateDescriptor<S, ?> descriptor) throws Exception {
        return SuiteBackends.state(backend, descriptor);
    }
}
