package org.flinkndb.testjobs.nexmark;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.flinkndb.jobs.Arguments;

import java.util.Map;

/**
 * One query of the Nexmark benchmark as a job.
 *
 * <p>Parameters: {@code --query} q3, q4, …; {@code --events} (2000000); {@code --seed} (1).
 */
public final class NexmarkJob {
    private static final String EVENTS =
            "CREATE TEMPORARY TABLE events (kind INT, ts TIMESTAMP(3), person ROW<id BIGINT, name"
                + " STRING, email STRING, card STRING, city STRING, region STRING, extra STRING>,"
                + " auction ROW<id BIGINT, item_name STRING, description STRING, initial_bid"
                + " BIGINT, reserve BIGINT, expires TIMESTAMP(3), seller BIGINT, category BIGINT,"
                + " extra STRING>, bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel"
                + " STRING, url STRING, extra STRING>, WATERMARK FOR ts AS ts - INTERVAL '4'"
                + " SECOND) WITH ('connector' = 'nexmark', 'events' = '%d', 'seed' = '%d')";
    private static final String PERSON =
            "CREATE TEMPORARY VIEW person AS SELECT e.person.id AS id, e.person.name AS name,"
                    + " e.person.email AS email, e.person.card AS card, e.person.city AS city,"
                    + " e.person.region AS region, ts, e.person.extra AS extra FROM events e WHERE"
                    + " kind = 0";
    private static final String AUCTION =
            "CREATE TEMPORARY VIEW auction AS SELECT e.auction.id AS id, e.auction.item_name AS"
                + " item_name, e.auction.description AS description, e.auction.initial_bid AS"
                + " initial_bid, e.auction.reserve AS reserve, ts, e.auction.expires AS expires,"
                + " e.auction.seller AS seller, e.auction.category AS category, e.auction.extra AS"
                + " extra FROM events e WHERE kind = 1";
    private static final String BID_COLUMNS =
            "e.bid.auction AS auction, e.bid.bidder AS bidder, e.bid.price AS price, e.bid.channel"
                    + " AS channel, e.bid.url AS url, ts, e.bid.extra AS extra";

    private NexmarkJob() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        String name = arguments.text("query");
        Map<String, String> queries = NexmarkQueries.all();
        String query = queries.get(name);
        if (query == null) {
            throw new IllegalArgumentException(
                    "--query: found " + name + ", allowed are " + queries.keySet());
        }
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(new Configuration());
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        tables.executeSql(
                String.format(
                        EVENTS,
                        arguments.number("events", 2_000_000),
                        arguments.number("seed", 1)));
        tables.executeSql(PERSON);
        tables.executeSql(AUCTION);
        tables.executeSql(bids("bid", BID_COLUMNS));
        tables.executeSql(bids("bid_now", BID_COLUMNS + ", PROCTIME() AS arrived"));
        tables.getConfig().set("pipeline.name", name);
        tables.sqlQuery(query).executeInsert(TableDescriptor.forConnector("digest").build());
    }

    private static String bids(String name, String columns) {
        return "CREATE TEMPORARY VIEW "
                + name
                + " AS SELECT "
                + columns
                + " FROM events e WHERE kind = 2";
    }
}
