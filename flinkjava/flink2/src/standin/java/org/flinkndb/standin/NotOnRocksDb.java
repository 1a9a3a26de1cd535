package org.flinkndb.standin;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * Leaves out the turns of Flink's SQL tests that run on RocksDB; the turns on the heap backend are ours.
 * JUnit finds it by META-INF/services.
 */
public final class NotOnRocksDb implements ExecutionCondition {
    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        return context.getDisplayName().contains("StateBackend=ROCKSDB")
                ? ConditionEvaluationResult.disabled("runs on RocksDB")
                : ConditionEvaluationResult.enabled("runs on the stand-in");
    }
}
