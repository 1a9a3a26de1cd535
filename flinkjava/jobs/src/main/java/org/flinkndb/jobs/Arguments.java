package org.flinkndb.jobs;

import java.util.HashMap;
import java.util.Map;

/** Arguments {@code --name value}. Flink's own class for them has another name in each Flink line. */
public final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    public Arguments(String[] args) {
        for (int i = 0; i < args.length; i += 2) {
            if (!args[i].startsWith("--") || i + 1 == args.length) {
                throw new IllegalArgumentException(
                        "arguments are --name value; found " + args[i] + " without one of them");
            }
            values.put(args[i].substring(2), args[i + 1]);
        }
    }

    public String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name + " is missing");
        }
        return value;
    }

    public long number(String name, long otherwise) {
        String value = values.get(name);
        return value == null ? otherwise : Long.parseLong(value);
    }
}
