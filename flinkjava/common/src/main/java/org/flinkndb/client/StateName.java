package org.flinkndb.client;

import org.flinkndb.proto.v1.StateEntry;

import java.util.Objects;

/** A state of a snapshot. Key-value states and timers have separate names. Immutable. */
public final class StateName {
    private final String name;
    private final StateKind kind;

    public StateName(String name, StateKind kind) {
        this.name = name;
        this.kind = kind;
    }

    static StateName fromWire(StateEntry entry) {
        boolean timer = entry.getKindValue() == StateKind.TIMER.number();
        // Only timers have to be told from the others.
        return new StateName(entry.getName(), timer ? StateKind.TIMER : StateKind.VALUE);
    }

    StateEntry toWire(int index) {
        return StateEntry.newBuilder()
                .setIndex(index)
                .setName(name)
                .setKindValue(kind.number())
                .build();
    }

    @Override
    public boolean equals(Object other) {
        if (!(other instanceof StateName)) {
            return false;
        }
        StateName that = (StateName) other;
        return name.equals(that.name)
                && (kind == StateKind.TIMER) == (that.kind == StateKind.TIMER);
    }

    @Override
    public int hashCode() {
        return Objects.hash(name, kind == StateKind.TIMER);
    }

    @Override
    public String toString() {
        return name;
    }
}
