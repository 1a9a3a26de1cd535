package org.flinkndb.state;

import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.BigDecSerializer;
import org.apache.flink.api.common.typeutils.base.BigIntSerializer;
import org.apache.flink.api.common.typeutils.base.BooleanSerializer;
import org.apache.flink.api.common.typeutils.base.ByteSerializer;
import org.apache.flink.api.common.typeutils.base.CharSerializer;
import org.apache.flink.api.common.typeutils.base.DoubleSerializer;
import org.apache.flink.api.common.typeutils.base.EnumSerializer;
import org.apache.flink.api.common.typeutils.base.FloatSerializer;
import org.apache.flink.api.common.typeutils.base.InstantSerializer;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.LocalDateSerializer;
import org.apache.flink.api.common.typeutils.base.LocalDateTimeSerializer;
import org.apache.flink.api.common.typeutils.base.LocalTimeSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.ShortSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.java.typeutils.runtime.TupleSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;

import java.io.IOException;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;

/**
 * Turns keys and namespaces into objects that are equal to what the store gives back for them, since
 * the object caches look them up by {@code equals}: rows of SQL that a job made come back as another
 * class and are equal to none of it. Backends that serialize at once let jobs use both. Whether a
 * class comes back as something else is found out with its first object. For one thread.
 */
final class StoredForm<T> {
    /** Serializers whose objects are equal if, and only if, their bytes are. */
    private static final Set<String> EQUAL_AS_BYTES_ARE =
            names(
                    BigDecSerializer.class,
                    BigIntSerializer.class,
                    BooleanSerializer.class,
                    ByteSerializer.class,
                    CharSerializer.class,
                    DoubleSerializer.class,
                    EnumSerializer.class,
                    FloatSerializer.class,
                    InstantSerializer.class,
                    IntSerializer.class,
                    LocalDateSerializer.class,
                    LocalDateTimeSerializer.class,
                    LocalTimeSerializer.class,
                    LongSerializer.class,
                    ShortSerializer.class,
                    StringSerializer.class,
                    VoidNamespaceSerializer.class,
                    GlobalWindow.Serializer.class,
                    TimeWindow.Serializer.class);

    private final TypeSerializer<T> serializer;
    private final boolean alwaysItself;
    private final DataOutputSerializer out = new DataOutputSerializer(64);
    private final DataInputDeserializer in = new DataInputDeserializer();
    private final Map<Class<?>, Boolean> changes = new HashMap<>();
    private Class<?> lastUnchanged;

    StoredForm(TypeSerializer<T> serializer) {
        this.serializer = serializer;
        this.alwaysItself = isEqualAsBytesAre(serializer);
    }

    private static Set<String> names(Class<?>... classes) {
        String[] names = Arrays.stream(classes).map(Class::getName).toArray(String[]::new);
        return Set.of(names);
    }

    /** Whether objects of a serializer are equal if, and only if, their bytes are. */
    static boolean isEqualAsBytesAre(TypeSerializer<?> serializer) {
        if (serializer.getClass() == TupleSerializer.class) {
            return Arrays.stream(((TupleSerializer<?>) serializer).getFieldSerializers())
                    .allMatch(StoredForm::isEqualAsBytesAre);
        }
        return EQUAL_AS_BYTES_ARE.contains(serializer.getClass().getName());
    }

    /** The object itself or, if that is another one to {@code equals}, what the store gives back. */
    T of(T object) throws IOException {
        if (alwaysItself || object == null || object.getClass() == lastUnchanged) {
            return object;
        }
        return look(object);
    }

    private T look(T object) throws IOException {
        Class<?> type = object.getClass();
        Boolean changed = changes.get(type);
        if (changed == null) {
            changed = !isSame(object, readBack(object));
            changes.put(type, changed);
        }
        if (changed) {
            return readBack(object);
        }
        lastUnchanged = type;
        return object;
    }

    private boolean isSame(T object, T back) {
        return object.equals(back) && back.equals(object) && object.hashCode() == back.hashCode();
    }

    private T readBack(T object) throws IOException {
        out.clear();
        serializer.serialize(object, out);
        in.setBuffer(out.getCopyOfBuffer());
        return serializer.deserialize(in);
    }
}
