package org.flinkndb.demo;

import java.io.Serializable;

/**
 * One line of the input: a flight, or the weather of an hour at an airport. Fields are public so that
 * Flink serializes it as a POJO.
 */
public final class Event implements Serializable {
    private static final long serialVersionUID = 1L;

    /** Scheduled departure, or the beginning of the hour, in milliseconds since 1970. */
    public long timestamp;

    public boolean flight;
    public String origin;
    public String carrier;
    public String tail;
    public String destination;

    /** Departure delay in minutes. */
    public int delay;

    /** Miles. */
    public int distance;

    /** Wind speed of a weather event, as the source writes it. */
    public String wind;

    public Event() {}

    /** An event that only says how late it is. */
    static Event clock(long timestamp) {
        Event event = new Event();
        event.timestamp = timestamp;
        event.origin = "";
        return event;
    }

    boolean isClock() {
        return origin.isEmpty();
    }

    /** Reads {@code F,ts,origin,carrier,tail,dest,delay,distance} or {@code X,ts,origin,wind}. */
    static Event parse(String line) {
        String[] fields = line.split(",", -1);
        Event event = new Event();
        event.flight = fields[0].equals("F");
        event.timestamp = Long.parseLong(fields[1]);
        event.origin = fields[2];
        if (event.flight) {
            event.carrier = fields[3];
            event.tail = fields[4];
            event.destination = fields[5];
            event.delay = Integer.parseInt(fields[6]);
            event.distance = Integer.parseInt(fields[7]);
        } else {
            event.wind = fields[3];
        }
        return event;
    }
}
