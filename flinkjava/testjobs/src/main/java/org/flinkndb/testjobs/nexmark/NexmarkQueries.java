package org.flinkndb.testjobs.nexmark;

import java.util.LinkedHashMap;
import java.util.Map;

/** The stateful Nexmark queries, over the views person, auction and bid. */
final class NexmarkQueries {
    private static final String DAY = "DATE_FORMAT(ts, 'yyyy-MM-dd')";
    private static final String BIDS_A_WINDOW =
            "(SELECT auction, COUNT(*) AS bids, window_start, window_end FROM TABLE(HOP(TABLE bid,"
                + " DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction,"
                + " window_start, window_end)";
    private static final String PRICE_RANGES =
            "COUNT(*) AS bids, COUNT(*) FILTER (WHERE price < 10000) AS low, COUNT(*) FILTER (WHERE"
                + " price >= 10000 AND price < 1000000) AS middle, COUNT(*) FILTER (WHERE price >="
                + " 1000000) AS high";

    private NexmarkQueries() {}

    static Map<String, String> all() {
        Map<String, String> q = new LinkedHashMap<>();
        // Who sells particular things in particular states.
        q.put(
                "q3",
                "SELECT p.name, p.city, p.region, a.id FROM auction a JOIN person p ON a.seller ="
                        + " p.id WHERE a.category = 10 AND p.region IN ('OR', 'ID', 'CA')");
        // The average price of what is sold, by category.
        q.put(
                "q4",
                "SELECT category, AVG(best) FROM (SELECT MAX(b.price) AS best, a.category FROM"
                        + " auction a JOIN bid b ON a.id = b.auction WHERE b.ts BETWEEN a.ts AND"
                        + " a.expires GROUP BY a.id, a.category) GROUP BY category");
        // The auctions with the most bids lately.
        q.put(
                "q5",
                "SELECT n.auction, n.bids, n.window_end FROM "
                        + BIDS_A_WINDOW
                        + " n JOIN (SELECT MAX(bids) AS most, window_start, window_end FROM "
                        + BIDS_A_WINDOW
                        + " GROUP BY window_start, window_end) m ON n.window_start ="
                        + " m.window_start AND n.window_end = m.window_end AND n.bids >= m.most");
        // The highest bid of each ten seconds.
        q.put(
                "q7",
                "SELECT b.auction, b.price, b.bidder, b.ts, b.extra FROM bid b JOIN (SELECT"
                    + " MAX(price) AS highest, window_end AS ended FROM TABLE(TUMBLE(TABLE bid,"
                    + " DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) m"
                    + " ON b.price = m.highest WHERE b.ts BETWEEN m.ended - INTERVAL '10' SECOND"
                    + " AND m.ended");
        // Who sells something in the same ten seconds in which they came.
        q.put(
                "q8",
                "SELECT p.id, p.name, p.window_start FROM (SELECT id, name, window_start,"
                    + " window_end FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(ts), INTERVAL '10'"
                    + " SECOND)) GROUP BY id, name, window_start, window_end) p JOIN (SELECT"
                    + " seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction,"
                    + " DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY seller, window_start,"
                    + " window_end) a ON p.id = a.seller AND p.window_start = a.window_start AND"
                    + " p.window_end = a.window_end");
        // The winning bid of each auction.
        q.put(
                "q9",
                "SELECT * FROM (SELECT a.*, b.bidder, b.price, b.ts AS bid_ts, b.extra AS"
                    + " bid_extra, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC,"
                    + " b.ts) AS n FROM auction a JOIN bid b ON a.id = b.auction WHERE b.ts BETWEEN"
                    + " a.ts AND a.expires) WHERE n <= 1");
        // How many bids each bidder made in each session of being active.
        q.put(
                "q11",
                "SELECT bidder, COUNT(*), SESSION_START(ts, INTERVAL '10' SECOND) FROM bid GROUP BY"
                        + " bidder, SESSION(ts, INTERVAL '10' SECOND)");
        // How many bids each bidder made in each ten seconds of the machine's clock.
        q.put(
                "q12",
                "SELECT bidder, COUNT(*), window_start FROM TABLE(TUMBLE(TABLE bid_now,"
                    + " DESCRIPTOR(arrived), INTERVAL '10' SECOND)) GROUP BY bidder, window_start,"
                    + " window_end");
        // Bids, bidders and auctions of each day, by price.
        q.put(
                "q15",
                "SELECT "
                        + DAY
                        + ", "
                        + PRICE_RANGES
                        + distinct("bidder")
                        + distinct("auction")
                        + " FROM bid GROUP BY "
                        + DAY);
        // The same for each channel.
        q.put(
                "q16",
                "SELECT channel, "
                        + DAY
                        + ", MAX(DATE_FORMAT(ts, 'HH:mm')), "
                        + PRICE_RANGES
                        + distinct("bidder")
                        + distinct("auction")
                        + " FROM bid GROUP BY channel, "
                        + DAY);
        // Each auction's bids of each day.
        q.put(
                "q17",
                "SELECT auction, "
                        + DAY
                        + ", "
                        + PRICE_RANGES
                        + ", MIN(price), MAX(price), AVG(price), SUM(price) FROM bid GROUP BY"
                        + " auction, "
                        + DAY);
        // The last bid of each bidder in each auction.
        q.put(
                "q18",
                "SELECT auction, bidder, price, channel, url, ts, extra FROM (SELECT *,"
                    + " ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS n FROM"
                    + " bid) WHERE n <= 1");
        // The ten highest bids of each auction.
        q.put(
                "q19",
                "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price"
                        + " DESC) AS n FROM bid) WHERE n <= 10");
        // Bids with what they are for, of one category.
        q.put(
                "q20",
                "SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts, b.extra, a.item_name,"
                    + " a.description, a.initial_bid, a.reserve, a.ts AS auction_ts, a.expires,"
                    + " a.seller, a.category, a.extra AS auction_extra FROM bid b JOIN auction a ON"
                    + " b.auction = a.id WHERE a.category = 10");
        return q;
    }

    private static String distinct(String column) {
        String count = ", COUNT(DISTINCT " + column + ")";
        return count
                + (count + " FILTER (WHERE price < 10000)")
                + (count + " FILTER (WHERE price >= 10000 AND price < 1000000)")
                + (count + " FILTER (WHERE price >= 1000000)");
    }
}
