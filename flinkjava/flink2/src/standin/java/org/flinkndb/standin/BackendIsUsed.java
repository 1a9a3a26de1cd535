package org.flinkndb.standin;

import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;

/**
 * Fails each class of tests that made no keyed backend of ours: it has run on another one, or has no
 * keyed state and does not belong here. JUnit finds it by META-INF/services.
 */
public final class BackendIsUsed implements BeforeAllCallback, AfterAllCallback {
    private static final Namespace NAMESPACE = Namespace.create(BackendIsUsed.class);
    private static final String BEFORE = "keyed backends before";

    @Override
    public void beforeAll(ExtensionContext context) {
        context.getStore(NAMESPACE).put(BEFORE, HashMapStateBackend.keyedBackends());
    }

    @Override
    public void afterAll(ExtensionContext context) {
        long before = context.getStore(NAMESPACE).get(BEFORE, Long.class);
        if (HashMapStateBackend.keyedBackends() == before) {
            throw new AssertionError(
                    context.getRequiredTestClass().getName()
                            + ": no keyed backend of FlinkNDB was made, so the tests did not use"
                            + " it");
        }
    }
}
