package org.flinkndb.standin;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

import java.util.regex.Pattern;

/**
 * Leaves out turns of Flink's tests, by their names: those of SQL on RocksDB, where the turns on the heap
 * backend are ours, and those that restore what only another backend can read. JUnit finds it by
 * META-INF/services.
 */
public final class LeftOut implements ExecutionCondition {
    private static final String ON_ROCKSDB = "StateBackend=ROCKSDB";

    /** Before Flink 1.13 RocksDB had a format of its own for savepoints too. */
    private static final Pattern FOREIGN_SNAPSHOT =
            Pattern.compile("flink1\\.(8|9|10|11|12)-rocksdb-|flink\\S*-(native|checkpoint)$");

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        String name = context.getDisplayName();
        if (name.contains(ON_ROCKSDB)) {
            return ConditionEvaluationResult.disabled("runs on RocksDB");
        }
        if (FOREIGN_SNAPSHOT.matcher(name).find()) {
            return ConditionEvaluationResult.disabled("is not in the canonical format");
        }
        return ConditionEvaluationResult.enabled("runs on the stand-in");
    }
}
