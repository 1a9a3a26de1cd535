package org.flinkndb.client;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What a session is opened for. Immutable after {@link #base} was last called. */
public final class OpenSpec {
    private final String jobId;
    private final String jobName;
    private final String operator;
    private final String attempt;
    private final int keyGroups;
    private final int firstGroup;
    private final int lastGroup;
    private final List<Base> bases = new ArrayList<>();

    public OpenSpec(
            String jobId,
            String jobName,
            String operator,
            String attempt,
            int keyGroups,
            int firstGroup,
            int lastGroup) {
        this.jobId = jobId;
        this.jobName = jobName;
        this.operator = operator;
        this.attempt = attempt;
        this.keyGroups = keyGroups;
        this.firstGroup = firstGroup;
        this.lastGroup = lastGroup;
    }

    /** Adds key groups to restore from a snapshot. */
    public void base(String snapshotId, int first, int last) {
        bases.add(new Base(snapshotId, first, last));
    }

    String jobId() {
        return jobId;
    }

    String jobName() {
        return jobName;
    }

    String operator() {
        return operator;
    }

    String attempt() {
        return attempt;
    }

    int keyGroups() {
        return keyGroups;
    }

    int firstGroup() {
        return firstGroup;
    }

    int lastGroup() {
        return lastGroup;
    }

    List<Base> bases() {
        return Collections.unmodifiableList(bases);
    }

    /** Key groups of one snapshot. */
    static final class Base {
        private final String snapshotId;
        private final int first;
        private final int last;

        private Base(String snapshotId, int first, int last) {
            this.snapshotId = snapshotId;
            this.first = first;
            this.last = last;
        }

        String snapshotId() {
            return snapshotId;
        }

        int first() {
            return first;
        }

        int last() {
            return last;
        }
    }
}
