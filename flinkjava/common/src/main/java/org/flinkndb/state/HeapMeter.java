package org.flinkndb.state;

import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.TypeSerializer;

import java.lang.reflect.Array;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Measures how much heap a value takes with all that it refers to: a row of Flink SQL is little more
 * than its bytes, a tuple of boxed numbers several times as much. The sizes are those of HotSpot with
 * its defaults (headers of 12 bytes, objects in steps of 8). Collections of the JDK are counted by
 * their elements, since their fields are closed to others. For one thread; meant for samples.
 */
final class HeapMeter {
    /** Larger graphs are not worth the time. */
    private static final int MAX_OBJECTS = 1024;

    private static final int HEADER_BYTES = 12;
    private static final int ARRAY_HEADER_BYTES = 16;
    private static final int STRING_BYTES = 24;
    private static final int ARRAY_LIST_BYTES = 24;
    private static final int HASH_TABLE_BYTES = 64;
    private static final int HASH_NODE_BYTES = 40;

    /** Larger heaps have references of 8 bytes. */
    private static final long MAX_COMPRESSED_HEAP = 32L << 30;

    private final int referenceBytes =
            Runtime.getRuntime().maxMemory() < MAX_COMPRESSED_HEAP ? 4 : 8;

    private final Map<Class<?>, Layout> layouts = new HashMap<>();

    /** What the objects of a class take, and which of their fields lead on. */
    private static final class Layout {
        private final long bytes;
        private final List<Field> references;

        private Layout(long bytes, List<Field> references) {
            this.bytes = bytes;
            this.references = references;
        }
    }

    /**
     * Bytes of a value, or -1 when it cannot be said: it is made of too many objects, or another thread
     * changes a collection that it refers to.
     */
    long measure(Object value) {
        Set<Object> seen = Collections.newSetFromMap(new IdentityHashMap<>());
        Deque<Object> open = new ArrayDeque<>();
        follow(value, open);
        long bytes = 0;
        while (!open.isEmpty()) {
            Object next = open.pop();
            if (seen.add(next)) {
                if (seen.size() + open.size() > MAX_OBJECTS) {
                    return -1;
                }
                long visited = visit(next, open);
                if (visited < 0) {
                    return -1;
                }
                bytes += visited;
            }
        }
        return bytes;
    }

    /**
     * Adds an object to those to be counted, unless it is one that many values share. A row of SQL may
     * refer to a state, in a view of its accumulator, and through it to the whole backend.
     */
    private static void follow(Object object, Deque<Object> open) {
        if (object != null
                && !(object instanceof Enum)
                && !(object instanceof Class)
                && !(object instanceof ClassLoader)
                && !(object instanceof State)
                && !(object instanceof TypeSerializer)
                && !(object instanceof TypeInformation)) {
            open.push(object);
        }
    }

    private long visit(Object object, Deque<Object> open) {
        Class<?> type = object.getClass();
        if (type.isArray()) {
            return array(object, type.getComponentType(), open);
        }
        if (object instanceof String) {
            return STRING_BYTES + aligned(ARRAY_HEADER_BYTES + stringBytes((String) object));
        }
        if (type.getModule() == Object.class.getModule()) {
            if (object instanceof Collection) {
                return collection((Collection<?>) object, open);
            }
            if (object instanceof Map) {
                return map((Map<?, ?>) object, open);
            }
        }
        Layout layout = layouts.computeIfAbsent(type, this::layout);
        for (Field field : layout.references) {
            try {
                follow(field.get(object), open);
            } catch (IllegalAccessException e) {
                throw new IllegalStateException(field + " was made accessible", e);
            }
        }
        return layout.bytes;
    }

    private long array(Object array, Class<?> component, Deque<Object> open) {
        int length = Array.getLength(array);
        if (component.isPrimitive()) {
            return aligned(ARRAY_HEADER_BYTES + (long) length * primitiveBytes(component));
        }
        for (int i = 0; i < Math.min(length, MAX_OBJECTS + 1); i++) {
            follow(Array.get(array, i), open);
        }
        return aligned(ARRAY_HEADER_BYTES + (long) length * referenceBytes);
    }

    /** Strings of Latin letters have a byte for each. */
    private static long stringBytes(String text) {
        for (int i = 0; i < text.length(); i++) {
            if (text.charAt(i) > 0xFF) {
                return 2L * text.length();
            }
        }
        return text.length();
    }

    private long collection(Collection<?> elements, Deque<Object> open) {
        if (!followSome(elements, open)) {
            return -1;
        }
        int each = elements instanceof List ? referenceBytes : HASH_NODE_BYTES;
        return ARRAY_LIST_BYTES + aligned(ARRAY_HEADER_BYTES + (long) elements.size() * each);
    }

    private long map(Map<?, ?> map, Deque<Object> open) {
        if (!followSome(map.keySet(), open) || !followSome(map.values(), open)) {
            return -1;
        }
        return HASH_TABLE_BYTES + (long) map.size() * HASH_NODE_BYTES;
    }

    /** Returns false when the elements change meanwhile. */
    private static boolean followSome(Collection<?> elements, Deque<Object> open) {
        int left = MAX_OBJECTS + 1;
        try {
            for (Object element : elements) {
                if (left-- == 0) {
                    return true;
                }
                follow(element, open);
            }
            return true;
        } catch (RuntimeException e) {
            // Values may refer to what threads of the job share. What iterators throw when their
            // collection
            // changes is not only ConcurrentModificationException; and no estimate is worth a job's
            // failure.
            return false;
        }
    }

    private Layout layout(Class<?> type) {
        long bytes = HEADER_BYTES;
        List<Field> references = new ArrayList<>();
        for (Class<?> c = type; c != null; c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers())) {
                    continue;
                }
                if (field.getType().isPrimitive()) {
                    bytes += primitiveBytes(field.getType());
                    continue;
                }
                bytes += referenceBytes;
                if (field.trySetAccessible()) {
                    references.add(field);
                }
            }
        }
        return new Layout(aligned(bytes), references);
    }

    private static int primitiveBytes(Class<?> type) {
        if (type == long.class || type == double.class) {
            return Long.BYTES;
        }
        if (type == int.class || type == float.class) {
            return Integer.BYTES;
        }
        return type == short.class || type == char.class ? Short.BYTES : Byte.BYTES;
    }

    private static long aligned(long bytes) {
        return (bytes + 7) & ~7L;
    }
}
