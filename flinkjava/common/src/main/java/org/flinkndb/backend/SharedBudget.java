package org.flinkndb.backend;

import org.apache.flink.runtime.memory.SharedResources;
import org.flinkndb.cache.CacheBudget;

import java.io.IOException;

/** The cache budget that the backends of one TaskManager share. */
public final class SharedBudget implements AutoCloseable {
    private static final String TYPE = "flinkndb-cache-budget";

    private final CacheBudget budget;

    private SharedBudget(CacheBudget budget) {
        this.budget = budget;
    }

    /** Opens an account; the first backend of a TaskManager decides on the size. */
    public static CacheBudget.Account open(SharedResources resources, long bytes)
            throws IOException {
        Object lease = new Object();
        try {
            SharedBudget shared =
                    resources
                            .getOrAllocateSharedResource(
                                    TYPE,
                                    lease,
                                    size -> new SharedBudget(new CacheBudget(size)),
                                    bytes)
                            .resourceHandle();
            return shared.budget.open(() -> release(resources, lease));
        } catch (Exception e) {
            throw new IOException("Cannot get the TaskManager's shared cache budget.", e);
        }
    }

    private static void release(SharedResources resources, Object lease) {
        try {
            resources.release(TYPE, lease, size -> {});
        } catch (Exception e) {
            throw new IllegalStateException("Cannot give back the shared cache budget.", e);
        }
    }

    /** Nothing to free: accounts only count. */
    @Override
    public void close() {}
}
