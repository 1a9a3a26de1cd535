package org.flinkndb.state;

import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;

/**
 * Walks the entries of a map state. Keys that were removed since the walk began are left out; entries
 * read and change the state itself.
 */
final class MapIterator<UK, UV> implements Iterator<Map.Entry<UK, UV>> {
    private final Iterator<UK> userKeys;
    private final Access<UK, UV> access;
    private Entry upcoming;
    private Entry last;

    /** Reaches the map. */
    interface Access<UK, UV> {
        MapEntry.Slot<UK, UV> slot(UK userKey);

        void put(UK userKey, UV value);

        void remove(UK userKey);
    }

    MapIterator(Iterator<UK> userKeys, Access<UK, UV> access) {
        this.userKeys = userKeys;
        this.access = access;
    }

    @Override
    public boolean hasNext() {
        while (upcoming == null && userKeys.hasNext()) {
            UK userKey = userKeys.next();
            MapEntry.Slot<UK, UV> slot = access.slot(userKey);
            if (slot.present) {
                upcoming = new Entry(userKey, slot.value);
            }
        }
        return upcoming != null;
    }

    @Override
    public Map.Entry<UK, UV> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        last = upcoming;
        upcoming = null;
        return last;
    }

    @Override
    public void remove() {
        if (last == null || last.removed) {
            throw new IllegalStateException(
                    "The remove operation must be called after a valid next operation.");
        }
        last.removed = true;
        access.remove(last.userKey);
    }

    /** One entry; setting its value changes the state. */
    private final class Entry implements Map.Entry<UK, UV> {
        private final UK userKey;
        private UV value;
        private boolean removed;

        private Entry(UK userKey, UV value) {
            this.userKey = userKey;
            this.value = value;
        }

        @Override
        public UK getKey() {
            return userKey;
        }

        @Override
        public UV getValue() {
            return removed ? null : value;
        }

        @Override
        public UV setValue(UV newValue) {
            if (removed) {
                throw new IllegalStateException("The value has already been deleted.");
            }
            UV old = value;
            value = newValue;
            access.put(userKey, newValue);
            return old;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Map.Entry
                    && Objects.equals(userKey, ((Map.Entry<?, ?>) other).getKey())
                    && Objects.equals(value, ((Map.Entry<?, ?>) other).getValue());
        }

        @Override
        public int hashCode() {
            return Objects.hashCode(userKey) ^ Objects.hashCode(value);
        }
    }
}
