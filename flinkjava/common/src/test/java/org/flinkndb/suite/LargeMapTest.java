package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
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

import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/**
 * Changes a map, which is too large to be kept whole, while walking through it: pages that were read
 * before must not bring back what was there.
 */
class LargeMapTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final int ROWS = 6000;

    /** Rows before this one, which the walk has passed when it changes the map, stay. */
    private static final int CHANGED_FROM = 20;

    private static final int OTHERS = 200;
    private static final String OTHER = "x".repeat(50_000);
    private static final MemorySize CACHE = MemorySize.parse("4mb");
    private static final long KEY = 1;

    private final JobID job = new JobID();
    private AbstractKeyedStateBackend<Long> backend;
    private MapState<Integer, Long> map;

    /** Nothing of the map is cached when a test begins. */
    @BeforeEach
    void restore() throws Exception {
        open(List.of());
        for (int i = 0; i < ROWS; i++) {
            map.put(i, (long) i);
        }
        KeyedStateHandle handle = TestBackends.handleOf(TestBackends.checkpoint(backend, 1));
        close();
        open(List.of(handle));
    }

    @AfterEach
    void close() throws Exception {
        backend.close();
        backend.dispose();
    }

    @Test
    void staysEmptyWhenItIsClearedInTheWalk() throws Exception {
        Iterator<Map.Entry<Integer, Long>> entries = begin();
        map.clear();
        assertThat(entries.hasNext()).as("more after clear").isFalse();
        assertThat(map.isEmpty()).as("empty").isTrue();
        for (int i = 0; i < ROWS; i++) {
            assertThat(map.get(i)).as("row %d", i).isNull();
        }
    }

    @Test
    void whatWasSetInTheWalkAndEvictedIsNotUndone() throws Exception {
        Iterator<Map.Entry<Integer, Long>> entries = begin();
        for (int i = CHANGED_FROM; i < ROWS; i++) {
            map.put(i, -1L);
        }
        fillCacheWithOthers();
        int seen = 0;
        while (entries.hasNext()) {
            assertThat(entries.next().getValue()).as("value in the walk").isEqualTo(-1);
            seen++;
        }
        assertThat(seen).as("rows of the walk").isEqualTo(ROWS - CHANGED_FROM);
        for (int i = 0; i < ROWS; i++) {
            assertThat(map.get(i)).as("row %d", i).isEqualTo(i < CHANGED_FROM ? i : -1);
        }
    }

    @Test
    void whatWasRemovedInTheWalkAndEvictedDoesNotComeBack() throws Exception {
        Iterator<Map.Entry<Integer, Long>> entries = begin();
        for (int i = CHANGED_FROM; i < ROWS; i++) {
            map.remove(i);
        }
        fillCacheWithOthers();
        assertThat(entries.hasNext()).as("more after all were removed").isFalse();
        for (int i = CHANGED_FROM; i < ROWS; i++) {
            assertThat(map.contains(i)).as("row %d", i).isFalse();
        }
    }

    /** The walk, which is in order of the rows, up to the one that will be changed first. */
    private Iterator<Map.Entry<Integer, Long>> begin() throws Exception {
        Iterator<Map.Entry<Integer, Long>> entries = map.iterator();
        for (int i = 0; i < CHANGED_FROM; i++) {
            assertThat(entries.next().getKey()).isEqualTo(i);
        }
        return entries;
    }

    /** Sends the changes of the map and lets it go. */
    private void fillCacheWithOthers() throws Exception {
        ValueState<String> other =
                create(new ValueStateDescriptor<>("other", StringSerializer.INSTANCE));
        for (int i = 1; i <= OTHERS; i++) {
            backend.setCurrentKey(KEY + i);
            other.update(OTHER);
        }
        backend.setCurrentKey(KEY);
    }

    private void open(Collection<KeyedStateHandle> handles) throws Exception {
        backend =
                SuiteBackends.open(
                        SuiteBackends.create(SERVER, NdbOptions.Recovery.LAZY, CACHE),
                        job,
                        handles);
        map =
                create(
                        new MapStateDescriptor<>(
                                "map", IntSerializer.INSTANCE, LongSerializer.INSTANCE));
        backend.setCurrentKey(KEY);
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        return SuiteBackends.state(backend, descriptor);
    }
}
