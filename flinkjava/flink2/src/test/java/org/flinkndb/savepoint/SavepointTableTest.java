package org.flinkndb.savepoint;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.client.program.ClusterClient;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.runtime.testutils.CommonTestUtils;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.state.table.module.StateModule;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.test.util.MiniClusterWithClientResource;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.Collector;
import org.flinkndb.testutil.ServerExtension;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** Flink's SQL connector 'savepoint' over what one job on this backend left behind. */
@Timeout(180)
class SavepointTableTest {
    private static final long KEYS = 20;
    private static final long RECORDS = 1_000;
    private static final String NDB = "org.flinkndb.NdbStateBackendFactory";

    /** Records that the job has counted; it runs in this process. */
    private static final AtomicInteger COUNTED = new AtomicInteger();

    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    @TempDir private static Path folder;

    private static MiniClusterWithClientResource cluster;
    private static final Map<Taken, String> PATHS = new EnumMap<>(Taken.class);

    /** How the state was taken. */
    enum Taken {
        CANONICAL_SAVEPOINT,
        NATIVE_SAVEPOINT,
        RETAINED_CHECKPOINT
    }

    @BeforeAll
    static void leaveStateBehind() throws Exception {
        cluster =
                new MiniClusterWithClientResource(
                        new MiniClusterResourceConfiguration.Builder()
                                .setConfiguration(configuration())
                                .setNumberTaskManagers(1)
                                .setNumberSlotsPerTaskManager(4)
                                .build());
        cluster.before();
        JobID job = startedJob();
        ClusterClient<?> client = cluster.getClusterClient();
        String target = folder.resolve("s").toUri() + "";
        PATHS.put(
                Taken.CANONICAL_SAVEPOINT,
                client.triggerSavepoint(job, target, SavepointFormatType.CANONICAL).get());
        PATHS.put(
                Taken.NATIVE_SAVEPOINT,
                client.triggerSavepoint(job, target, SavepointFormatType.NATIVE).get());
        PATHS.put(Taken.RETAINED_CHECKPOINT, checkpoint(job));
        cancel(job);
    }

    private static String checkpoint(JobID job) throws Exception {
        cluster.getClusterClient().triggerCheckpoint(job, CheckpointType.CONFIGURED).get();
        return CommonTestUtils.getLatestCompletedCheckpointPath(job, cluster.getMiniCluster())
                .orElseThrow();
    }

    private static void cancel(JobID job) throws Exception {
        ClusterClient<?> client = cluster.getClusterClient();
        client.cancel(job).get();
        CommonTestUtils.waitUntilCondition(
                () -> client.getJobStatus(job).get() == JobStatus.CANCELED);
    }

    @AfterAll
    static void awaitNoSession() throws Exception {
        CommonTestUtils.waitUntilCondition(() -> SERVER.server().counter("flinkndb_sessions") == 0);
        cluster.after();
    }

    private static Configuration configuration() {
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", NDB);
        configuration.setString("state.backend.ndb.address", SERVER.address());
        configuration.setString("execution.checkpointing.dir", folder.resolve("c").toUri() + "");
        configuration.setString("restart-strategy.type", "none");
        configuration.setString(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
        FileSystem.initialize(configuration, null);
        return configuration;
    }

    private static JobID startedJob() throws Exception {
        COUNTED.set(0);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration());
        env.enableCheckpointing(3_600_000); // when the test says so
        env.setParallelism(2);
        env.fromSequence(0, Long.MAX_VALUE - 1)
                .setParallelism(1)
                .map(SavepointTableTest::slowly)
                .setParallelism(1)
                .keyBy(number -> number % KEYS)
                .process(new Keeper())
                .uid("keeper")
                .name("keeper")
                .sinkTo(new DiscardingSink<>());
        JobID job = env.executeAsync().getJobID();
        CommonTestUtils.waitUntilCondition(() -> COUNTED.get() == RECORDS);
        return job;
    }

    /** Slow once all that counts has been sent. */
    private static long slowly(long number) throws InterruptedException {
        if (number > RECORDS) {
            Thread.sleep(10);
        }
        return number;
    }

    @ParameterizedTest
    @EnumSource
    void selectsEveryKindOfState(Taken taken) throws Exception {
        assertAllState(rows(table(PATHS.get(taken), NDB), "SELECT * FROM state"));
    }

    @ParameterizedTest
    @CsvSource({
        "NATIVE_SAVEPOINT, hashmap",
        "RETAINED_CHECKPOINT, rocksdb",
        "CANONICAL_SAVEPOINT, rocksdb"
    })
    void selectsWithOtherBackends(Taken taken, String backend) throws Exception {
        assertAllState(rows(table(PATHS.get(taken), backend), "SELECT * FROM state"));
    }

    @Test
    void selectsWhileTheJobGoesOn() throws Exception {
        JobID job = startedJob();
        for (int i = 0; i < 2; i++) { // the second one is not taken from a job that was disturbed
            assertAllState(rows(table(checkpoint(job), NDB), "SELECT * FROM state"));
        }
        cancel(job);
    }

    @Test
    void joinsASavepointWithItself() throws Exception {
        assertThat(
                        rows(
                                table(PATHS.get(Taken.NATIVE_SAVEPOINT), NDB),
                                "SELECT COUNT(*), SUM(a.total) FROM state a JOIN state b"
                                        + " ON a.k = b.k AND a.total = b.total"))
                .containsExactly(Row.of(KEYS, RECORDS * (RECORDS - 1) / 2));
    }

    @ParameterizedTest
    @EnumSource
    void listsTheOperators(Taken taken) throws Exception {
        StreamTableEnvironment tables = environment();
        tables.loadModule(StateModule.IDENTIFIER, StateModule.INSTANCE);
        assertThat(
                        rows(
                                tables,
                                "SELECT `operator-uid`, `operator-parallelism`,"
                                        + " `operator-max-parallelism`,"
                                        + " `operator-subtask-state-count`"
                                        + " FROM savepoint_metadata('"
                                        + PATHS.get(taken)
                                        + "') WHERE `operator-uid` IS NOT NULL"))
                .containsExactly(Row.of("keeper", 2, 128, 2));
    }

    private static void assertAllState(List<Row> rows) {
        assertThat(rows).hasSize((int) KEYS);
        for (Row row : rows) {
            long key = row.getFieldAs("k");
            List<Long> numbers =
                    LongStream.range(0, RECORDS / KEYS)
                            .mapToObj(i -> key + i * KEYS)
                            .collect(Collectors.toList());
            assertThat(row.<Long>getFieldAs("total"))
                    .isEqualTo(numbers.stream().mapToLong(Long::longValue).sum());
            assertThat(row.<Long[]>getFieldAs("seen")).containsExactlyElementsOf(numbers);
            assertThat(row.<Map<String, Long>>getFieldAs("digits"))
                    .isEqualTo(
                            numbers.stream()
                                    .collect(
                                            Collectors.groupingBy(
                                                    SavepointTableTest::digits,
                                                    Collectors.counting())));
            long last = RECORDS - KEYS + key;
            assertThat(row.<Row>getFieldAs("latest")).isEqualTo(Row.of(last, "number"));
            assertThat(row.<Long>getFieldAs("expiring")).isEqualTo(last);
        }
    }

    private static String digits(long number) {
        return Long.toString(number).length() + " digits";
    }

    private static StreamTableEnvironment environment() {
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration());
        env.setParallelism(2);
        return StreamTableEnvironment.create(env, EnvironmentSettings.inBatchMode());
    }

    private static StreamTableEnvironment table(String path, String backend) {
        StreamTableEnvironment tables = environment();
        tables.executeSql(
                String.join(
                        "\n",
                        "CREATE TABLE state (",
                        "  k BIGINT,",
                        "  total BIGINT,",
                        "  seen ARRAY<BIGINT>,",
                        "  digits MAP<STRING, BIGINT>,",
                        "  latest ROW<number BIGINT, kind STRING>,",
                        "  expiring BIGINT,",
                        "  PRIMARY KEY (k) NOT ENFORCED",
                        ") WITH (",
                        "  'connector' = 'savepoint',",
                        "  'state.backend.type' = '" + backend + "',",
                        "  'state.path' = '" + path + "',",
                        "  'operator.uid' = 'keeper',",
                        "  'fields.total.state-name' = 'sum of numbers',",
                        "  'fields.total.state-type' = 'VALUE',",
                        "  'fields.total.value-class' = 'java.lang.Long',",
                        "  'fields.seen.state-type' = 'LIST',",
                        "  'fields.digits.key-class' = 'java.lang.String',",
                        // Flink takes the stored serializer otherwise: that of value and time.
                        "  'fields.expiring.value-class' = 'java.lang.Long'",
                        ")"));
        return tables;
    }

    private static List<Row> rows(StreamTableEnvironment tables, String query) throws Exception {
        List<Row> rows = new ArrayList<>();
        try (CloseableIterator<Row> found = tables.executeSql(query).collect()) {
            found.forEachRemaining(rows::add);
        }
        return rows;
    }

    /** What the job saw last of a key. */
    public static final class Latest {
        public long number;
        public String kind;
    }

    /** Keeps the first records of a key in every kind of state that the connector knows. */
    private static final class Keeper extends KeyedProcessFunction<Long, Long, Long> {
        private static final long serialVersionUID = 1L;
        private transient ValueState<Long> sum;
        private transient ListState<Long> seen;
        private transient MapState<String, Long> digits;
        private transient ValueState<Latest> latest;
        private transient ValueState<Long> expiring;

        @Override
        public void open(OpenContext context) {
            sum =
                    getRuntimeContext()
                            .getState(new ValueStateDescriptor<>("sum of numbers", Types.LONG));
            seen = getRuntimeContext().getListState(new ListStateDescriptor<>("seen", Types.LONG));
            digits =
                    getRuntimeContext()
                            .getMapState(
                                    new MapStateDescriptor<>("digits", Types.STRING, Types.LONG));
            latest =
                    getRuntimeContext()
                            .getState(
                                    new ValueStateDescriptor<>("latest", Types.POJO(Latest.class)));
            ValueStateDescriptor<Long> withTime =
                    new ValueStateDescriptor<>("expiring", Types.LONG);
            withTime.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(1)).build());
            expiring = getRuntimeContext().getState(withTime);
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out)
                throws Exception {
            if (number >= RECORDS) {
                return;
            }
            Long before = sum.value();
            sum.update(before == null ? number : before + number);
            seen.add(number);
            Long times = digits.get(digits(number));
            digits.put(digits(number), times == null ? 1 : times + 1);
            Latest now = new Latest();
            now.number = number;
            now.kind = "number";
            latest.update(now);
            expiring.update(number);
            context.timerService().registerEventTimeTimer(Long.MAX_VALUE - 1);
            COUNTED.incrementAndGet();
        }
    }
}
