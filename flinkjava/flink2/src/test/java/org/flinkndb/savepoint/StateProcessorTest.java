package org.flinkndb.savepoint;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.accumulators.IntCounter;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.OperatorTransformation;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.SavepointWriter;
import org.apache.flink.state.api.functions.KeyedStateBootstrapFunction;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.test.util.MiniClusterWithClientResource;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.flinkndb.NdbStateBackendFactory;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/**
 * The State Processor API with this backend: it reads a native savepoint of a running job, and writes
 * one that it reads again.
 */
@Timeout(180)
class StateProcessorTest {
    private static final long KEYS = 20;

    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @TempDir private Path folder;

    private Configuration configuration() {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", "org.flinkndb.NdbStateBackendFactory");
        configuration.setString("state.backend.ndb.address", SERVER.address());
        configuration.setString("execution.checkpointing.dir", folder.resolve("c").toUri() + "");
        FileSystem.initialize(configuration, null);
        return configuration;
    }

    private StateBackend backend() throws Exception {
        return new NdbStateBackendFactory()
                .createFromConfig(configuration(), getClass().getClassLoader());
    }

    @Test
    void readsASavepointOfAJob() throws Exception {
        MiniClusterWithClientResource cluster =
                new MiniClusterWithClientResource(
                        new MiniClusterResourceConfiguration.Builder()
                                .setConfiguration(configuration())
                                .setNumberTaskManagers(1)
                                .setNumberSlotsPerTaskManager(2)
                                .build());
        cluster.before();
        String savepoint;
        try {
            savepoint = stoppedJob(cluster);
        } finally {
            cluster.after();
        }
        List<Tuple3<Long, Long, Integer>> rows = read(savepoint, backend());
        long records = 0;
        for (Tuple3<Long, Long, Integer> row : rows) {
            assertThat(row.f1).isEqualTo((long) row.f2); // as many list elements as counted
            records += row.f1;
        }
        assertThat(records).isGreaterThan(KEYS);
        for (String other : List.of("hashmap", "rocksdb")) {
            assertThat(read(savepoint, TestBackends.named(other, SERVER.address())))
                    .as("read with " + other)
                    .containsExactlyInAnyOrderElementsOf(rows);
        }
    }

    /** Runs a job for a while and stops it with a native savepoint. */
    private String stoppedJob(MiniClusterWithClientResource cluster) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(2);
        env.fromSequence(0, Long.MAX_VALUE - 1)
                .map(
                        number -> {
                            Thread.sleep(1);
                            return number;
                        })
                .keyBy(number -> number % KEYS)
                .process(new Counter())
                .uid("counter")
                .sinkTo(new DiscardingSink<>());
        JobID job = env.executeAsync().getJobID();
        while (cluster.getClusterClient().getAccumulators(job).get().isEmpty()) {
            Thread.sleep(50); // until the operator has counted something
        }
        return cluster.getClusterClient()
                .stopWithSavepoint(
                        job, false, folder.resolve("s").toUri() + "", SavepointFormatType.NATIVE)
                .get();
    }

    @Test
    void writesASavepointThatItReads() throws Exception {
        String path = folder.resolve("written").toUri() + "";
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(2);
        SavepointWriter.newSavepoint(env, backend(), 128)
                .withOperator(
                        OperatorIdentifier.forUid("counter"),
                        OperatorTransformation.bootstrapWith(env.fromSequence(0, 999))
                                .keyBy(number -> number % KEYS, Types.LONG)
                                .transform(new Bootstrap()))
                .write(path);
        env.execute();
        List<Tuple3<Long, Long, Integer>> rows = read(path, backend());
        assertThat(rows).hasSize((int) KEYS);
        assertThat(rows).allMatch(row -> row.f1 == 1000 / KEYS && row.f2 == 1000 / KEYS);
    }

    private List<Tuple3<Long, Long, Integer>> read(String savepoint, StateBackend backend)
            throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(2);
        List<Tuple3<Long, Long, Integer>> rows = new ArrayList<>();
        try (CloseableIterator<Tuple3<Long, Long, Integer>> found =
                SavepointReader.read(env, savepoint, backend)
                        .readKeyedState(
                                OperatorIdentifier.forUid("counter"),
                                new Reader(),
                                Types.LONG,
                                Types.TUPLE(Types.LONG, Types.LONG, Types.INT))
                        .executeAndCollect()) {
            found.forEachRemaining(rows::add);
        }
        return rows;
    }

    private static ValueStateDescriptor<Long> count() {
        return new ValueStateDescriptor<>("count", Types.LONG);
    }

    private static ListStateDescriptor<Long> seen() {
        return new ListStateDescriptor<>("seen", Types.LONG);
    }

    /** Counts the records of a key and remembers them. */
    private static final class Counter extends KeyedProcessFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ListState<Long> seen;
        private transient IntCounter records;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(count());
            seen = getRuntimeContext().getListState(seen());
            records = new IntCounter();
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out)
                throws Exception {
            Long before = count.value();
            count.update(before == null ? 1 : before + 1);
            seen.add(number);
            records.add(1);
            if (records.getLocalValue() == 5 * KEYS) {
                getRuntimeContext().addAccumulator("records", records);
            }
        }
    }

    /** Writes the same states. */
    private static final class Bootstrap extends KeyedStateBootstrapFunction<Long, Long> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ListState<Long> seen;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(count());
            seen = getRuntimeContext().getListState(seen());
        }

        @Override
        public void processElement(Long number, Context context) throws Exception {
            Long before = count.value();
            count.update(before == null ? 1 : before + 1);
            seen.add(number);
        }
    }

    /** Reads them: key, count, length of the list. */
    private static final class Reader
            extends KeyedStateReaderFunction<Long, Tuple3<Long, Long, Integer>> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> count;
        private transient ListState<Long> seen;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(count());
            seen = getRuntimeContext().getListState(seen());
        }

        @Override
        public void readKey(Long key, Context context, Collector<Tuple3<Long, Long, Integer>> out)
                throws Exception {
            int length = 0;
            for (Iterator<Long> i = seen.get().iterator(); i.hasNext(); i.next()) {
                length++;
            }
            out.collect(Tuple3.of(key, count.value(), length));
        }
    }
}
