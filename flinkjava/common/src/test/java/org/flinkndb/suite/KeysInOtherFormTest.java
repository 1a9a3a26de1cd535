package org.flinkndb.suite;

import static org.assertj.core.api.Assertions.assertThat;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.array.BytePrimitiveArraySerializer;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.flinkndb.config.NdbOptions;
import org.flinkndb.testutil.ServerExtension;
import org.flinkndb.testutil.TestBackends;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;

/**
 * Keys and map keys that come back from the store as objects which the job's are not equal to: rows of
 * SQL do, and arrays. They must be found as by backends that serialize at once, before a restore and
 * after it, and none may be there twice.
 */
class KeysInOtherFormTest {
    @RegisterExtension static final ServerExtension SERVER = new ServerExtension();

    /** Enough for the filter of stored keys to be made while absent ones are asked for. */
    private static final int KEYS = 400;

    private static final int KEY_GROUPS = 16;

    private final JobID job = new JobID();

    private AbstractKeyedStateBackend<Texts.Name> backend;
    private ValueState<Long> value;
    private MapState<Texts.Name, Long> map;
    private MapState<byte[], Long> byArray;

    @ParameterizedTest
    @EnumSource(NdbOptions.Recovery.class)
    void areFoundByTheirBytes(NdbOptions.Recovery recovery) throws Exception {
        open(List.of(), recovery);
        for (long epoch = 1; epoch <= 3; epoch++) {
            for (int k = 0; k < KEYS; k++) {
                change(k, epoch);
            }
            verify(epoch);
            Collection<KeyedStateHandle> handles =
                    List.of(TestBackends.handleOf(TestBackends.checkpoint(backend, epoch)));
            close();
            open(handles, recovery);
            if (epoch == 2) {
                verify(epoch); // and in the other epochs changes come first
            }
        }
        close();
    }

    private void change(int k, long epoch) throws Exception {
        backend.setCurrentKey(Texts.Name.given("absent" + k));
        assertThat(value.value()).isNull();
        backend.setCurrentKey(Texts.Name.given("key" + k));
        value.update(k * epoch);
        for (int m = 0; m < 3; m++) {
            map.put(Texts.Name.given("gone" + m), epoch);
            map.put(Texts.Name.given("map key" + m), m * epoch);
            byArray.put(bytes("gone" + m), epoch);
            byArray.put(bytes("map key" + m), m * epoch);
        }
        for (int m = 0; m < 3; m++) {
            map.remove(Texts.Name.given("gone" + m));
            byArray.remove(bytes("gone" + m));
        }
    }

    private void verify(long epoch) throws Exception {
        for (int k = 0; k < KEYS; k++) {
            backend.setCurrentKey(Texts.Name.given("key" + k));
            assertThat(value.value()).as("value of %d", k).isEqualTo(k * epoch);
            for (int m = 0; m < 3; m++) {
                assertThat(map.get(Texts.Name.given("map key" + m))).isEqualTo(m * epoch);
                assertThat(byArray.get(bytes("map key" + m))).isEqualTo(m * epoch);
                assertThat(map.contains(Texts.Name.given("gone" + m))).isFalse();
                assertThat(byArray.contains(bytes("gone" + m))).isFalse();
            }
            List<String> names = new ArrayList<>();
            for (Map.Entry<Texts.Name, Long> entry : map.entries()) {
                names.add(entry.getKey().text);
            }
            for (byte[] array : byArray.keys()) {
                names.add(new String(array, StandardCharsets.UTF_8));
            }
            assertThat(names)
                    .containsExactlyInAnyOrder(
                            "map key0", "map key1", "map key2", "map key0", "map key1", "map key2");
        }
        assertThat(backend.getKeys("value", VoidNamespace.INSTANCE)).hasSize(KEYS);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void open(Collection<KeyedStateHandle> handles, NdbOptions.Recovery recovery)
            throws Exception {
        backend =
                TestBackends.open(
                        SuiteBackends.create(SERVER, recovery),
                        job,
                        new Texts.NameSerializer(),
                        KEY_GROUPS,
                        KeyGroupRange.of(0, KEY_GROUPS - 1),
                        handles);
        value = create(new ValueStateDescriptor<>("value", Types.LONG));
        map =
                create(
                        new MapStateDescriptor<>(
                                "map", new Texts.NameSerializer(), LongSerializer.INSTANCE));
        byArray =
                create(
                        new MapStateDescriptor<>(
                                "by array",
                                BytePrimitiveArraySerializer.INSTANCE,
                                LongSerializer.INSTANCE));
    }

    private <S extends State> S create(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return backend.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }

    private void close() throws Exception {
        backend.close();
        backend.dispose();
    }
}
