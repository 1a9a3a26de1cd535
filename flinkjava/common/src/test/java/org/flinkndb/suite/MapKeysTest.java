package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.common.typeutils.base.array.BytePrimitiveArraySerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.runtime.typeutils.RowDataSerializer;
import org.apache.flink.table.runtime.typeutils.StringDataSerializer;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.VarCharType;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.function.BiFunction;

/**
 * Does the same to map states of ours and of RocksDB, with map keys whose {@code equals} says something
 * else than their bytes do: with hardly any cache and with all that it needs, before restores and after.
 */
class MapKeysTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    private static final int KEY_GROUPS = 16;
    private static final int KEYS = 3;
    private static final int MAP_KEYS = 12;
    private static final int ROUNDS = 3;
    private static final int STEPS = 80;

    /** What map keys there are. */
    enum Kind {
        LONG(LongSerializer.INSTANCE, (random, m) -> (long) m),
        STRING(StringSerializer.INSTANCE, (random, m) -> new String("m" + m)),
        TUPLE(
                Types.TUPLE(Types.LONG, Types.STRING)
                        .createSerializer(new ExecutionConfig().getSerializerConfig()),
                (random, m) -> Tuple2.of((long) m / 2, "m" + m % 2)),
        /** Equal to nothing but themselves. */
        ARRAY(BytePrimitiveArraySerializer.INSTANCE, (random, m) -> bytes(m)),
        /** Of the same class, with content that is equal or not. */
        LIST_OF_ARRAYS(
                new ListSerializer<>(BytePrimitiveArraySerializer.INSTANCE),
                (random, m) -> m == 0 ? List.of() : List.of(bytes(m))),
        /** Given as one class, read as another. */
        NAME(
                new Texts.NameSerializer(),
                (random, m) ->
                        random.nextBoolean()
                                ? Texts.Name.given("m" + m)
                                : Texts.Name.stored("m" + m)),
        /** Rows of SQL, as jobs make them and as they are read. */
        ROW(
                new RowDataSerializer(new BigIntType(), new VarCharType(20)),
                (random, m) -> row(random.nextBoolean(), m)),
        STRING_OF_SQL(StringDataSerializer.INSTANCE, (random, m) -> StringData.fromString("m" + m)),
        /** Equal to others whose bytes are different. */
        CASELESS(
                new Texts.CaselessSerializer(),
                (random, m) -> new Texts.Caseless(m % 2 == 0 ? "m" + m / 2 : "M" + m / 2));

        private final TypeSerializer<Object> serializer;
        private final BiFunction<Random, Integer, Object> make;

        @SuppressWarnings("unchecked")
        <T> Kind(TypeSerializer<T> serializer, BiFunction<Random, Integer, Object> make) {
            this.serializer = (TypeSerializer<Object>) serializer;
            this.make = make;
        }
    }

    private static byte[] bytes(int m) {
        return ("m" + m).getBytes(StandardCharsets.UTF_8);
    }

    private static RowData row(boolean asRead, int m) {
        GenericRowData row = GenericRowData.of((long) m / 3, StringData.fromString("m" + m % 3));
        return asRead
                ? new RowDataSerializer(new BigIntType(), new VarCharType(20)).toBinaryRow(row)
                : row;
    }

    private final JobID job = new JobID();
    private final Random random = new Random(7);
    private AbstractKeyedStateBackend<Long> ours;
    private AbstractKeyedStateBackend<Long> rocksDb;
    private MapState<Object, Long> our;
    private MapState<Object, Long> their;

    @ParameterizedTest
    @EnumSource(Kind.class)
    void areTheSameAsInRocksDb(Kind kind) throws Exception {
        for (MemorySize cache : List.of(MemorySize.parse("1b"), MemorySize.parse("16mb"))) {
            for (NdbOptions.Recovery recovery : NdbOptions.Recovery.values()) {
                compare(kind, cache, recovery);
            }
        }
    }

    private void compare(Kind kind, MemorySize cache, NdbOptions.Recovery recovery)
            throws Exception {
        rocksDb = open(TestBackends.named("rocksdb", SERVER.address()), List.of());
        their = create(rocksDb, kind);
        Collection<KeyedStateHandle> handles = List.of();
        for (long round = 1; round <= ROUNDS; round++) {
            ours = open(SuiteBackends.create(SERVER, recovery, cache), handles);
            our = create(ours, kind);
            for (int step = 0; step < STEPS; step++) {
                goTo(random.nextInt(KEYS));
                change(kind);
                look(kind);
            }
            handles = List.of(TestBackends.handleOf(TestBackends.checkpoint(ours, round)));
            close(ours);
        }
        close(rocksDb);
    }

    private void goTo(long key) {
        ours.setCurrentKey(key);
        rocksDb.setCurrentKey(key);
    }

    private void change(Kind kind) throws Exception {
        int m = random.nextInt(MAP_KEYS);
        long value = random.nextLong();
        switch (random.nextInt(20)) {
            case 0:
                our.clear();
                their.clear();
                return;
            case 1:
                removeWhileIterating(kind, our, value);
                removeWhileIterating(kind, their, value);
                return;
            case 2:
                setWhileIterating(our);
                setWhileIterating(their);
                return;
            default:
                break;
        }
        if (random.nextInt(3) == 0) {
            our.remove(kind.make.apply(random, m));
            their.remove(kind.make.apply(random, m));
        } else {
            our.put(kind.make.apply(random, m), value);
            their.put(kind.make.apply(random, m), value);
        }
    }

    /** Removes some, which are the same in whatever order. */
    private static void removeWhileIterating(Kind kind, MapState<Object, Long> map, long which)
            throws Exception {
        Iterator<Map.Entry<Object, Long>> entries = map.iterator();
        while (entries.hasNext()) {
            if ((serialized(kind, entries.next().getKey()).hashCode() ^ which) % 3 == 0) {
                entries.remove();
            }
        }
    }

    private static void setWhileIterating(MapState<Object, Long> map) throws Exception {
        for (Map.Entry<Object, Long> entry : map.entries()) {
            entry.setValue(entry.getValue() + 1);
        }
    }

    private void look(Kind kind) throws Exception {
        for (int m = 0; m < MAP_KEYS; m++) {
            Object key = kind.make.apply(random, m);
            assertThat(our.contains(key)).as("contains %d", m).isEqualTo(their.contains(key));
            assertThat(our.get(kind.make.apply(random, m)))
                    .as("get %d", m)
                    .isEqualTo(their.get(key));
        }
        assertThat(our.isEmpty()).as("isEmpty").isEqualTo(their.isEmpty());
        assertThat(content(kind, our)).as("content").isEqualTo(content(kind, their));
    }

    /** Everything in a map, whose bytes must be there once. */
    private static Map<ByteBuffer, Long> content(Kind kind, MapState<Object, Long> map)
            throws Exception {
        Map<ByteBuffer, Long> content = new TreeMap<>();
        for (Map.Entry<Object, Long> entry : map.entries()) {
            ByteBuffer at = serialized(kind, entry.getKey());
            assertThat(content.put(at, entry.getValue())).as("twice in the map").isNull();
        }
        return content;
    }

    private static ByteBuffer serialized(Kind kind, Object key) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(32);
        kind.serializer.serialize(key, out);
        return ByteBuffer.wrap(out.getCopyOfBuffer());
    }

    private AbstractKeyedStateBackend<Long> open(
            StateBackend factory, Collection<KeyedStateHandle> handles) throws Exception {
        return TestBackends.open(
                factory,
                job,
                LongSerializer.INSTANCE,
                KEY_GROUPS,
                KeyGroupRange.of(0, KEY_GROUPS - 1),
                handles);
    }

    private static MapState<Object, Long> create(AbstractKeyedStateBackend<Long> backend, Kind kind)
            throws Exception {
        MapStateDescriptor<Object, Long> descriptor =
                new MapStateDescriptor<>("map", kind.serializer, LongSerializer.INSTANCE);
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }

    private static void close(AbstractKeyedStateBackend<Long> backend) throws Exception {
        backend.close();
        backend.dispose();
    }
}
