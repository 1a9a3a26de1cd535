package org.flinkndb;

import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.runtime.metrics.MetricNames;
import org.apache.flink.runtime.state.BackendBuildingException;
import org.apache.flink.runtime.state.InternalKeyContextImpl;
import org.apache.flink.runtime.state.StateBackend.KeyedStateBackendParameters;
import org.apache.flink.runtime.state.StreamCompressionDecorator;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.runtime.state.restore.FullSnapshotRestoreOperation;
import org.apache.flink.runtime.state.restore.SavepointRestoreResult;
import org.apache.flink.runtime.state.restore.ThrowingIterator;
import org.flinkndb.backend.BackendCore;
import org.flinkndb.backend.BackendMetrics;
import org.flinkndb.backend.SharedBudget;
import org.flinkndb.cache.CacheBudget;
import org.flinkndb.client.OpenSpec;
import org.flinkndb.client.StateSession;
import org.flinkndb.client.StateSessions;
import org.flinkndb.config.NdbSettings;
import org.flinkndb.restore.CanonicalRestore;
import org.flinkndb.restore.RestorePlan;
import org.flinkndb.restore.SchemaReader;

import java.io.IOException;
import java.util.List;

/** Opens a session for one subtask and makes its backend. */
final class NdbKeyedStateBackendBuilder<K> extends FlinkKeyedStateBackendBuilder<K> {
    private final NdbSettings settings;
    private final KeyedStateBackendParameters<K> parameters;
    private final StateTracking tracking;

    NdbKeyedStateBackendBuilder(
            NdbSettings settings,
            KeyedStateBackendParameters<K> parameters,
            StateTracking tracking,
            StreamCompressionDecorator compression) {
        super(parameters, tracking, compression);
        this.settings = settings;
        this.tracking = tracking;
        this.parameters = parameters;
    }

    @Override
    public NdbKeyedStateBackend<K> build() throws BackendBuildingException {
        long start = System.currentTimeMillis();
        try {
            RestorePlan plan = RestorePlan.of(restoreStateHandles, keyGroupRange);
            BackendMetrics metrics = new BackendMetrics(parameters.getMetricGroup());
            StateSession session = open(plan, metrics);
            long opened = System.currentTimeMillis();
            NdbKeyedStateBackend<K> backend;
            try {
                // A cancelled task must not wait for a slow restore.
                cancelStreamRegistry.registerCloseable(session);
                backend = restore(plan, session, metrics);
                cancelStreamRegistry.unregisterCloseable(session);
            } catch (Throwable e) {
                session.close();
                throw e;
            }
            if (!restoreStateHandles.isEmpty()) {
                // Opening the session stands for what other backends report as the download.
                report(MetricNames.DOWNLOAD_STATE_DURATION, opened - start);
                report(MetricNames.RESTORE_STATE_DURATION, System.currentTimeMillis() - opened);
            }
            return backend;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new BackendBuildingException("Interrupted while the state was opened.", e);
        } catch (BackendBuildingException e) {
            throw e;
        } catch (Exception e) {
            throw new BackendBuildingException("Cannot open the state: " + e.getMessage(), e);
        }
    }

    private void report(String metric, long millis) {
        parameters.getCustomInitializationMetrics().addMetric(metric, millis);
    }

    private StateSession open(RestorePlan plan, BackendMetrics metrics)
            throws IOException, InterruptedException {
        OpenSpec spec =
                new OpenSpec(
                        parameters.getJobID().toHexString(),
                        parameters.getEnv().getJobInfo().getJobName(),
                        parameters.getOperatorIdentifier(),
                        parameters.getEnv().getExecutionId().toString(),
                        numberOfKeyGroups,
                        keyGroupRange.getStartKeyGroup(),
                        keyGroupRange.getEndKeyGroup());
        plan.addTo(spec);
        return StateSessions.open(settings, spec, metrics);
    }

    private NdbKeyedStateBackend<K> restore(
            RestorePlan plan, StateSession session, BackendMetrics metrics) throws Exception {
        List<StateMetaInfoSnapshot> metaInfos =
                new SchemaReader<>(userCodeClassLoader, keySerializerProvider)
                        .read(session.baseSchemas());
        ThrowingIterator<SavepointRestoreResult> canonical = null;
        SavepointRestoreResult first = null;
        if (!plan.canonical().isEmpty()) {
            canonical =
                    new FullSnapshotRestoreOperation<>(
                                    keyGroupRange,
                                    userCodeClassLoader,
                                    plan.canonical(),
                                    keySerializerProvider)
                            .restore();
            // Reading its header checks the key serializer, which the backend is made with.
            first = canonical.hasNext() ? canonical.next() : null;
        }
        InternalKeyContextImpl<K> keyContext =
                new InternalKeyContextImpl<>(keyGroupRange, numberOfKeyGroups);
        CacheBudget.Account account =
                SharedBudget.open(parameters.getEnv().getSharedResources(), settings.cacheBytes());
        BackendCore<K> core =
                new BackendCore<>(
                        settings,
                        session,
                        account,
                        keyContext,
                        keySerializerProvider.currentSchemaSerializer(),
                        executionConfig,
                        userCodeClassLoader,
                        ttlTimeProvider,
                        new FlinkSerializers(ttlTimeProvider),
                        metrics);
        try {
            metaInfos.forEach(core::restored);
            if (first != null) {
                CanonicalRestore reader = new CanonicalRestore(core);
                reader.read(first);
                while (canonical.hasNext()) {
                    reader.read(canonical.next());
                }
            }
            metrics.watch(core);
            return new NdbKeyedStateBackend<>(
                    kvStateRegistry,
                    core,
                    tracking,
                    new CloseableRegistry(),
                    keyGroupCompressionDecorator,
                    keyContext);
        } catch (Throwable e) { // a share of the TaskManager's cache would be taken for ever
            core.close();
            throw e;
        }
    }
}
