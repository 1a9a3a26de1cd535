package org.flinkndb.standin;

import org.apache.flink.streaming.util.KeyedOneInputStreamOperatorTestHarness;
import org.apache.flink.util.ExceptionUtils;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.opentest4j.TestAbortedException;

/** Aborts, with the reason, the tests that only Flink's heap backend can end. JUnit finds it by META-INF/services. */
public final class NotApplicableHere implements TestExecutionExceptionHandler {
    @Override
    public void handleTestExecutionException(ExtensionContext context, Throwable failure)
            throws Throwable {
        String reason = reason(context, failure);
        if (reason == null) {
            throw failure;
        }
        throw new TestAbortedException(reason, failure);
    }

    private static String reason(ExtensionContext context, Throwable failure) {
        StackTraceElement[] trace = failure.getStackTrace();
        if (failure instanceof UnsupportedOperationException
                && trace.length > 0
                && trace[0].getClassName()
                        .equals(KeyedOneInputStreamOperatorTestHarness.class.getName())
                && trace[0].getMethodName().equals("numKeyedStateEntries")) {
            return "counts state entries, which Flink's harness does for its heap backend only";
        }
        if (failure instanceof ClassCastException
                && context.getRequiredTestClass()
                        .getSimpleName()
                        .equals("AllWindowTranslationTest")) {
            return "declares String keys but has Byte keys: any backend that serializes keys fails";
        }
        if (context.getDisplayName().contains("process-map-state")
                && ExceptionUtils.findThrowable(failure, NullPointerException.class).isPresent()) {
            return "puts null into a map with a time to live: any backend that serializes values"
                    + " fails";
        }
        return null;
    }
}
