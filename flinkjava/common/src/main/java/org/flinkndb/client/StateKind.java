package org.flinkndb.client;

/** What the rows of a state are. Numbers are those of the wire. */
public enum StateKind {
    /** One row per key and namespace: value, reducing and aggregating state. */
    VALUE(1),
    /** One row per key and namespace, appends allowed. */
    LIST(2),
    /** One row per key, namespace and map key. */
    MAP(3),
    /** One row per timer: the key is the timer, the value is empty. */
    TIMER(4);

    private final int number;

    StateKind(int number) {
        this.number = number;
    }

    /** Number on the wire. */
    public int number() {
        return number;
    }
}
