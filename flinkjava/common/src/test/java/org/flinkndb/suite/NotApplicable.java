package org.flinkndb.suite;

import org.junit.jupiter.api.extension.ConditionEvaluationResult;
import org.junit.jupiter.api.extension.ExecutionCondition;
import org.junit.jupiter.api.extension.ExtensionContext;

import java.util.Map;

/** Leaves out those tests of a suite that cannot apply, each with its reason. */
final class NotApplicable implements ExecutionCondition {
    private final Map<String, String> reasons;

    /**
     * @param reasons reason for each test method that is left out
     */
    NotApplicable(Map<String, String> reasons) {
        this.reasons = reasons;
    }

    @Override
    public ConditionEvaluationResult evaluateExecutionCondition(ExtensionContext context) {
        String reason =
                context.getTestMethod().map(method -> reasons.get(method.getName())).orElse(null);
        return reason == null
                ? ConditionEvaluationResult.enabled("applies")
                : ConditionEvaluationResult.disabled(reason);
    }
}
