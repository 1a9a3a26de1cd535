package org.flinkndb.testjobs;

import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.typeutils.RowTypeInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.flinkndb.jobs.Arguments;
import org.flinkndb.jobs.Numbers;
import org.flinkndb.jobs.Throttle;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Flink SQL of every kind that keeps state, over generated orders, payments and prices. Each change of
 * each result becomes a line {@code kind query row} in files; what remains when they are added up must
 * not depend on the state backend, nor on failures.
 *
 * <p>Parameters: {@code --records} orders (20000), {@code --rate} a second (0 = unlimited), {@code
 * --output} folder.
 */
public final class SqlJob {
    private static final int CUSTOMERS = 50;
    private static final int PRODUCTS = 20;
    private static final long ORDER_MILLIS = 100;

    private SqlJob() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        long records = arguments.number("records", 20_000);
        long rate = arguments.number("rate", 0);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(new Configuration());
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        tables.getConfig().set("table.exec.mini-batch.enabled", "true");
        tables.getConfig().set("table.exec.mini-batch.allow-latency", "200 ms");
        tables.getConfig().set("table.exec.mini-batch.size", "200");

        register(tables, env, "orders", records, rate, SqlJob::order, "customer", "product");
        register(tables, env, "payments", records, rate, SqlJob::payment, "order_id", "method");
        register(tables, env, "prices", records / 20, rate / 20, SqlJob::price, "product", "step");
        tables.executeSql(
                "CREATE TEMPORARY VIEW current_prices AS SELECT product, amount, ts FROM (SELECT *,"
                    + " ROW_NUMBER() OVER (PARTITION BY product ORDER BY ts DESC) AS n FROM prices)"
                    + " WHERE n = 1");

        DataStream<String> all = null;
        for (Map.Entry<String, String> query : queries().entrySet()) {
            String name = query.getKey();
            DataStream<String> lines =
                    tables.toChangelogStream(tables.sqlQuery(query.getValue()))
                            .map(row -> line(name, row))
                            .returns(Types.STRING)
                            .name(name);
            all = all == null ? lines : all.union(lines);
        }
        all.sinkTo(
                        FileSink.forRowFormat(
                                        new Path(arguments.text("output")),
                                        new SimpleStringEncoder<String>())
                                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                                .build())
                .name("results");
        env.execute("sql");
    }

    private static String line(String query, Row row) {
        RowKind kind = row.getKind();
        row.setKind(RowKind.INSERT);
        return kind.shortString() + " " + query + " " + row;
    }

    /** Registers a table (id, two keys, amount, ts) of which row i is made from the number i. */
    private static void register(
            StreamTableEnvironment tables,
            StreamExecutionEnvironment env,
            String name,
            long records,
            long rate,
            MapFunction<Long, Row> rows,
            String firstKey,
            String secondKey) {
        DataStream<Row> stream =
                Numbers.from(env, name + " numbers", Math.max(1, records), new Throttle<>(rate))
                        .map(rows)
                        .returns(
                                new RowTypeInfo(
                                        Types.LONG, Types.LONG, Types.LONG, Types.LONG, Types.LONG))
                        .setParallelism(1)
                        .name(name);
        tables.createTemporaryView(
                name,
                tables.fromDataStream(
                                stream,
                                Schema.newBuilder()
                                        .column("f0", "BIGINT NOT NULL")
                                        .column("f1", "BIGINT NOT NULL")
                                        .column("f2", "BIGINT NOT NULL")
                                        .column("f3", "BIGINT NOT NULL")
                                        .column("f4", "BIGINT NOT NULL")
                                        .columnByExpression("ts", "TO_TIMESTAMP_LTZ(f4, 3)")
                                        .watermark("ts", "ts - INTERVAL '1' SECOND")
                                        .build())
                        .as("id", firstKey, secondKey, "amount", "millis", "ts"));
    }

    private static long hash(long number, int purpose, long range) {
        long h = (number + 1) * 0x9E3779B97F4A7C15L + purpose * 0xC2B2AE3D27D4EB4FL;
        h ^= h >>> 29;
        h *= 0xBF58476D1CE4E5B9L;
        h ^= h >>> 32;
        return Long.remainderUnsigned(h, range);
    }

    private static Row order(Long i) {
        return Row.of(
                i, hash(i, 1, CUSTOMERS), hash(i, 2, PRODUCTS), hash(i, 3, 1000), i * ORDER_MILLIS);
    }

    /** Most orders are paid five seconds later, some twice, some never. */
    private static Row payment(Long i) {
        long order = i % 7 == 3 ? i - 1 : i % 5 == 0 ? -i - 1 : i;
        return Row.of(i, order, hash(i, 4, 3), hash(i, 5, 1000), i * ORDER_MILLIS + 5_000);
    }

    private static Row price(Long i) {
        return Row.of(i, hash(i, 6, PRODUCTS), i, hash(i, 7, 100), i * 20 * ORDER_MILLIS);
    }

    private static Map<String, String> queries() {
        Map<String, String> q = new LinkedHashMap<>();
        q.put(
                "aggregate",
                "SELECT customer, COUNT(*), SUM(amount), MAX(amount), COUNT(DISTINCT product)"
                        + " FROM orders GROUP BY customer");
        q.put(
                "retracting",
                "SELECT total / 100000, COUNT(*), MIN(total) FROM (SELECT customer, SUM(amount) AS"
                        + " total FROM orders GROUP BY customer) GROUP BY total / 100000");
        q.put(
                "tumble",
                "SELECT window_start, product, COUNT(*), SUM(amount) FROM TABLE(TUMBLE(TABLE"
                        + " orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start,"
                        + " window_end, product");
        q.put(
                "hop",
                "SELECT window_end, COUNT(DISTINCT customer) FROM TABLE(HOP(TABLE orders,"
                        + " DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE)) GROUP BY"
                        + " window_start, window_end");
        q.put(
                "session",
                "SELECT customer, SESSION_START(ts, INTERVAL '8' SECOND), COUNT(*), SUM(amount)"
                        + " FROM orders GROUP BY customer, SESSION(ts, INTERVAL '8' SECOND)");
        q.put(
                "inner join",
                "SELECT o.id, p.id, o.amount - p.amount FROM orders o JOIN payments p ON o.id ="
                        + " p.order_id");
        q.put(
                "left join",
                "SELECT o.id, p.id FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND"
                        + " p.amount > 500");
        q.put(
                "full join",
                "SELECT o.id, p.id FROM (SELECT * FROM orders WHERE product < 5) o FULL OUTER JOIN"
                        + " (SELECT * FROM payments WHERE `method` = 1) p ON o.id = p.order_id");
        q.put(
                "semi join",
                "SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments WHERE amount >"
                        + " 900)");
        q.put(
                "anti join",
                "SELECT id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE"
                        + " p.order_id = o.id)");
        q.put(
                "interval join",
                "SELECT o.id, p.id FROM orders o, payments p WHERE o.id = p.order_id AND p.ts"
                        + " BETWEEN o.ts AND o.ts + INTERVAL '5' SECOND");
        q.put(
                "temporal join",
                "SELECT o.id, o.amount * c.amount FROM (SELECT * FROM orders WHERE product < 10) o"
                        + " JOIN current_prices FOR SYSTEM_TIME AS OF o.ts AS c ON o.product ="
                        + " c.product");
        q.put(
                "top",
                "SELECT product, id, amount, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY"
                        + " product ORDER BY amount DESC, id) AS n FROM orders) WHERE n <= 3");
        q.put(
                "first row",
                "SELECT customer, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer"
                        + " ORDER BY ts) AS n FROM orders) WHERE n = 1");
        q.put(
                "last row",
                "SELECT customer, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY customer"
                        + " ORDER BY ts DESC) AS n FROM orders) WHERE n = 1");
        q.put(
                "over",
                "SELECT id, SUM(amount) OVER w, COUNT(*) OVER w FROM orders WINDOW w AS (PARTITION"
                        + " BY customer ORDER BY ts RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND"
                        + " CURRENT ROW)");
        q.put(
                "match",
                "SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY customer ORDER BY ts MEASURES"
                    + " A.id AS start_id, LAST(DOWN.id) AS lowest_id, UP.id AS end_id ONE ROW PER"
                    + " MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A DOWN+ UP) WITHIN INTERVAL"
                    + " '30' SECOND DEFINE DOWN AS DOWN.amount < A.amount, UP AS UP.amount >"
                    + " A.amount)");
        return q;
    }
}
