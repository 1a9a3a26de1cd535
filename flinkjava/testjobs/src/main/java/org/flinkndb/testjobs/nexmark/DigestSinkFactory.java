package org.flinkndb.testjobs.nexmark;

import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.factories.DynamicTableSinkFactory;

import java.util.Set;

/** Tables {@code 'connector' = 'digest'}: keep nothing of a result but {@link DigestSink its digest}. */
public final class DigestSinkFactory implements DynamicTableSinkFactory {
    @Override
    public String factoryIdentifier() {
        return "digest";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    @Override
    public DynamicTableSink createDynamicTableSink(Context context) {
        return new DigestSink(context.getPhysicalRowDataType().getLogicalType());
    }
}
