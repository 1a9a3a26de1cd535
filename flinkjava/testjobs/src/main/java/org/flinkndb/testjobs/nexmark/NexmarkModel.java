package org.flinkndb.testjobs.nexmark;

import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;

import java.io.Serializable;
import java.util.SplittableRandom;

/**
 * The events of the Nexmark benchmark as a function of their number: of 50 events in a row one is a
 * new person, three are new auctions and 46 are bids, with hot sellers, bidders, auctions and
 * channels. Event {@code n} is the same for the same seed on every machine and in any order, so a
 * source has nothing to remember but the number.
 *
 * <p>The model and its constants are those of Apache Beam's Nexmark generator, which follows Tucker,
 * Tufte, Papadimos and Maier, "NEXMark – a benchmark for queries over data streams"; the texts are our
 * own, of the lengths given there. The clock of the events runs at {@link #EVENTS_A_SECOND}.
 */
final class NexmarkModel implements Serializable {
    private static final long serialVersionUID = 1L;

    static final int PERSON = 0;
    static final int AUCTION = 1;
    static final int BID = 2;

    /** So many events happen in a second of their own time. */
    static final long EVENTS_A_SECOND = 10_000;

    private static final int PERSONS_OF_50 = 1;
    private static final int AUCTIONS_OF_50 = 3;
    private static final int GROUP = 50;
    private static final long FIRST_ID = 1_000;
    private static final long FIRST_CATEGORY = 10;
    private static final int CATEGORIES = 5;
    private static final int ACTIVE_PEOPLE = 1_000;
    private static final int OPEN_AUCTIONS = 100;
    private static final int LEAD = 10; // ids that are used a little before they exist
    private static final int HOT_GROUP = 100; // one hot id among so many
    private static final int CHANNELS = 10_000;
    private static final long START = 1_436_918_400_000L; // 15 July 2015, as in Beam's generator

    private static final int PERSON_BYTES = 200;
    private static final int AUCTION_BYTES = 500;
    private static final int BID_BYTES = 100;

    private static final String[] REGIONS = {"AZ", "CA", "ID", "OR", "WA", "WY"};
    private static final String[] CITIES = {
        "Phoenix",
        "Los Angeles",
        "San Francisco",
        "Boise",
        "Portland",
        "Bend",
        "Redmond",
        "Seattle",
        "Kent",
        "Cheyenne"
    };
    private static final String[] FIRST_NAMES = {
        "Ada", "Alan", "Barbara", "Edsger", "Frances", "Grace", "John", "Leslie", "Radia", "Tony"
    };
    private static final String[] LAST_NAMES = {
        "Allen", "Dijkstra", "Hoare", "Hopper", "Lamport", "Liskov", "Lovelace", "Perlman", "Turing"
    };
    private static final StringData[] HOT_CHANNELS = {
        StringData.fromString("Apple"),
        StringData.fromString("Baidu"),
        StringData.fromString("Facebook"),
        StringData.fromString("Google")
    };

    private final long seed;

    NexmarkModel(long seed) {
        this.seed = seed;
    }

    /** Event n as (kind, ts, person, auction, bid), of which two of the last three are null. */
    RowData event(long n) {
        SplittableRandom random = new SplittableRandom(seed * 0x9E3779B97F4A7C15L + n);
        GenericRowData row = new GenericRowData(5);
        row.setField(1, TimestampData.fromEpochMillis(millis(n)));
        long offset = n % GROUP;
        if (offset < PERSONS_OF_50) {
            row.setField(0, PERSON);
            row.setField(2, person(n, random));
        } else if (offset < PERSONS_OF_50 + AUCTIONS_OF_50) {
            row.setField(0, AUCTION);
            row.setField(3, auction(n, random));
        } else {
            row.setField(0, BID);
            row.setField(4, bid(n, random));
        }
        return row;
    }

    private static long millis(long n) {
        return START + n * 1_000 / EVENTS_A_SECOND;
    }

    private static RowData person(long n, SplittableRandom random) {
        String first = FIRST_NAMES[random.nextInt(FIRST_NAMES.length)];
        String last = LAST_NAMES[random.nextInt(LAST_NAMES.length)];
        return GenericRowData.of(
                FIRST_ID + lastPerson(n),
                StringData.fromString(first + " " + last),
                text(random, 7 + random.nextInt(7)),
                text(random, 19),
                StringData.fromString(CITIES[random.nextInt(CITIES.length)]),
                StringData.fromString(REGIONS[random.nextInt(REGIONS.length)]),
                extra(random, PERSON_BYTES, 70));
    }

    private static RowData auction(long n, SplittableRandom random) {
        long initial = price(random);
        boolean hot = random.nextInt(4) > 0;
        long seller = hot ? hotId(lastPerson(n)) : anyPerson(n, random);
        return GenericRowData.of(
                FIRST_ID + lastAuction(n),
                text(random, 20),
                text(random, 100),
                initial,
                initial + price(random),
                TimestampData.fromEpochMillis(millis(n) + openMillis(n, random)),
                FIRST_ID + seller,
                FIRST_CATEGORY + random.nextInt(CATEGORIES),
                extra(random, AUCTION_BYTES, 170));
    }

    private static RowData bid(long n, SplittableRandom random) {
        long auction = random.nextInt(2) > 0 ? hotId(lastAuction(n)) : anyAuction(n, random);
        // The hot bidder is the neighbour of the hot seller.
        long bidder = random.nextInt(4) > 0 ? hotId(lastPerson(n)) + 1 : anyPerson(n, random);
        StringData channel =
                random.nextInt(2) > 0
                        ? HOT_CHANNELS[random.nextInt(HOT_CHANNELS.length)]
                        : StringData.fromString("channel-" + random.nextInt(CHANNELS));
        return GenericRowData.of(
                FIRST_ID + auction,
                FIRST_ID + bidder,
                price(random),
                channel,
                text(random, 24),
                extra(random, BID_BYTES, 70));
    }

    /** The person that came last, before or at event n. */
    private static long lastPerson(long n) {
        return n / GROUP;
    }

    /** The auction that came last, before or at event n. */
    private static long lastAuction(long n) {
        long before =
                n % GROUP - PERSONS_OF_50; // auctions of this group of 50 that have come, less one
        return n / GROUP * AUCTIONS_OF_50 + Math.min(before, AUCTIONS_OF_50 - 1);
    }

    private static long hotId(long last) {
        return Math.max(last, 0) / HOT_GROUP * HOT_GROUP;
    }

    private static long anyPerson(long n, SplittableRandom random) {
        long people = lastPerson(n) + 1;
        long active = Math.min(people, ACTIVE_PEOPLE);
        return people - active + random.nextLong(active + LEAD);
    }

    private static long anyAuction(long n, SplittableRandom random) {
        long last = Math.max(lastAuction(n), 0);
        long oldest = Math.max(last - OPEN_AUCTIONS, 0);
        return oldest + random.nextLong(last - oldest + 1 + LEAD);
    }

    /** How long an auction is open: on average until {@link #OPEN_AUCTIONS} more have come. */
    private static long openMillis(long n, SplittableRandom random) {
        long horizon = millis(n + (long) OPEN_AUCTIONS * GROUP / AUCTIONS_OF_50) - millis(n);
        return 1 + random.nextLong(Math.max(2 * horizon, 1));
    }

    /** Cents, evenly spread on a logarithmic scale from 1 to a million units. */
    private static long price(SplittableRandom random) {
        return Math.round(Math.pow(10, random.nextDouble() * 6) * 100);
    }

    /** What fills an event up to its size, give or take a fifth. */
    private static StringData extra(SplittableRandom random, int size, int used) {
        int missing = size - used;
        return text(random, missing * 4 / 5 + random.nextInt(missing * 2 / 5 + 1));
    }

    private static StringData text(SplittableRandom random, int length) {
        byte[] letters = new byte[length];
        long bits = 0;
        for (int i = 0; i < length; i++) {
            if (i % 8 == 0) {
                bits = random.nextLong();
            }
            letters[i] = (byte) ('a' + (bits & 0xF));
            bits >>>= 8;
        }
        return StringData.fromBytes(letters);
    }
}
