package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

import java.util.ArrayList;
import java.util.List;

/**
 * Gives a state values that its serializer rejects, in a job that catches every exception and goes on:
 * no checkpoint may succeed without the updates of other keys.
 */
class RejectedValuesTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    /** More than a cache of this size holds, so that changes are sent before the checkpoint. */
    private static final long KEYS = 60_000;

    private static final MemorySize CACHE = MemorySize.parse("1mb");
    private static final TypeInformation<Tuple2<Long, Long>> PAIR =
            Types.TUPLE(Types.LONG, Types.LONG);

    private final JobID job = new JobID();
    private AbstractKeyedStateBackend<Long> backend;

    @BeforeEach
    void open() throws Exception {
        open(List.of());
    }

    @AfterEach
    void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    @Test
    void losesNoUpdateOfOtherKeys() throws Exception {
        ValueState<Tuple2<Long, Long>> state = create(new ValueStateDescriptor<>("value", PAIR));
        List<Long> accepted = new ArrayList<>();
        int rejected = 0;
        for (long key = 0; key < KEYS; key++) {
            backend.setCurrentKey(key);
            try {
                if (key == 100) {
                    state.update(Tuple2.of(key, null));
                } else {
                    state.update(Tuple2.of(key, key));
                    accepted.add(key);
                }
            } catch (Exception e) {
                rejected++;
            }
        }
        assertThat(rejected).as("updates that failed").isPositive();
        KeyedStateHandle handle;
        try {
            handle = TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
        } catch (Exception e) {
            assertThat(e).hasStackTraceContaining("NullFieldException");
            return; // the job goes back to the checkpoint before
        }
        close();
        open(List.of(handle));
        ValueState<Tuple2<Long, Long>> restored = create(new ValueStateDescriptor<>("value", PAIR));
        for (long key : accepted) {
            backend.setCurrentKey(key);
            assertThat(restored.value()).as("key %d", key).isEqualTo(Tuple2.of(key, key));
        }
    }

    @Test
    void leavesTheValueThatWasThere() throws Exception {
        ValueState<Tuple2<Long, Long>> state = create(new ValueStateDescriptor<>("value", PAIR));
        // The sizes of the first values are all measured, which serializes them.
        backend.setCurrentKey(1L);
        state.update(Tuple2.of(1L, 1L));
        assertThatThrownBy(() -> state.update(Tuple2.of(1L, null))).isNotNull();
        assertThat(state.value()).isEqualTo(Tuple2.of(1L, 1L));
        backend.setCurrentKey(2L);
        assertThatThrownBy(() -> state.update(Tuple2.of(1L, null))).isNotNull();
        assertThat(state.value()).isNull();
    }

    @Test
    void leavesTheListThatWasThere() throws Exception {
        ListState<Tuple2<Long, Long>> state = create(new ListStateDescriptor<>("list", PAIR));
        backend.setCurrentKey(1L);
        state.add(Tuple2.of(1L, 1L));
        assertThatThrownBy(() -> state.add(Tuple2.of(1L, null))).isNotNull();
        assertThatThrownBy(() -> state.update(List.of(Tuple2.of(1L, null)))).isNotNull();
        assertThat(state.get()).containsExactly(Tuple2.of(1L, 1L));
    }

    private void open(List<KeyedStateHandle> handles) throws Exception {
        backend =
                SuiteBackends.open(
                        SuiteBackends.create(SERVER, NdbOptions.Recovery.LAZY, CACHE),
                        job,
                        handles);
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        return SuiteBackends.state(backend, descriptor);
    }
}
