package org.flinkndb.benchmarks;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.AbstractKeyedStateBackend;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.StateBackendLoader;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.flinkndb.testutil.ServerProcess;
import org.flinkndb.testutil.TestBackends;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Comparator;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Stream;

/** A keyed backend of the chosen kind, made as Flink makes it, with 100,000 keys. */
@org.openjdk.jmh.annotations.State(Scope.Thread)
public class BackendState {
    static final int KEYS = 100_000;
    private static final int KEY_GROUPS = 128;

    @Param({"hashmap", "rocksdb", "forst", "ndb"})
    private String backend;

    AbstractKeyedStateBackend<Long> keyed;
    private Path folder;
    private ServerProcess server;

    @Setup
    public void open() throws Exception {
        folder = Files.createTempDirectory("flinkndb-jmh");
        Configuration configuration = new Configuration();
        configuration.setString("state.backend.type", backend);
        if (backend.equals("ndb")) {
            server = ServerProcess.start(folder);
            configuration.setString("state.backend.type", "org.flinkndb.NdbStateBackendFactory");
            configuration.setString("state.backend.ndb.address", server.address());
        }
        configure(configuration);
        StateBackend factory =
                StateBackendLoader.loadStateBackendFromConfig(
                        configuration, getClass().getClassLoader(), null);
        keyed =
                TestBackends.open(
                        factory,
                        new JobID(),
                        LongSerializer.INSTANCE,
                        KEY_GROUPS,
                        KeyGroupRange.of(0, KEY_GROUPS - 1),
                        Collections.emptyList());
    }

    /** Adds to what the backend is made from. */
    void configure(Configuration configuration) {}

    <S extends State> S state(StateDescriptor<S, ?> descriptor) throws Exception {
        descriptor.initializeSerializerUnlessSet(new ExecutionConfig());
        return keyed.getPartitionedState(
                VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, descriptor);
    }

    /** Goes to a key that has state. */
    void anyKey() {
        keyed.setCurrentKey((long) ThreadLocalRandom.current().nextInt(KEYS));
    }

    @TearDown
    public void close() throws Exception {
        keyed.close();
        keyed.dispose();
        if (server != null) {
            server.close();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }
}
