package org.flinkndb.testjobs.nexmark;

import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;

import java.util.Set;

/** Tables {@code 'connector' = 'nexmark'}: the events of {@link NexmarkModel}. */
public final class NexmarkSourceFactory implements DynamicTableSourceFactory {
    private static final ConfigOption<Long> EVENTS =
            ConfigOptions.key("events").longType().noDefaultValue();
    private static final ConfigOption<Long> SEED =
            ConfigOptions.key("seed").longType().defaultValue(1L);

    @Override
    public String factoryIdentifier() {
        return "nexmark";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of(EVENTS);
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of(SEED);
    }

    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        helper.validate();
        ReadableConfig options = helper.getOptions();
        return new NexmarkSource(
                options.get(EVENTS), options.get(SEED), context.getPhysicalRowDataType());
    }
}
