package org.flinkndb.testjobs.nexmark;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;

/** Counts up to the number of events and turns each number into its event. */
final class NexmarkSource implements ScanTableSource {
    private final long events;
    private final long seed;
    private final DataType type;

    NexmarkSource(long events, long seed, DataType type) {
        this.events = events;
        this.seed = seed;
        this.type = type;
    }

    @Override
    public ChangelogMode getChangelogMode() {
        return ChangelogMode.insertOnly();
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
        return new Provider(events, new NexmarkModel(seed), context.createTypeInformation(type));
    }

    @Override
    public DynamicTableSource copy() {
        return new NexmarkSource(events, seed, type);
    }

    @Override
    public String asSummaryString() {
        return "Nexmark events";
    }

    private static final class Provider implements DataStreamScanProvider {
        private final long events;
        private final NexmarkModel model;
        private final TypeInformation<RowData> type;

        Provider(long events, NexmarkModel model, TypeInformation<RowData> type) {
            this.events = events;
            this.model = model;
            this.type = type;
        }

        @Override
        public boolean isBounded() {
            return true;
        }

        @Override
        public DataStream<RowData> produceDataStream(
                ProviderContext context, StreamExecutionEnvironment env) {
            int readers = env.getParallelism();
            long each = Math.max(1, events / readers);
            return env.fromSource(
                            new NumberSequenceSource(0, each * readers - 1),
                            WatermarkStrategy.noWatermarks(),
                            "nexmark numbers")
                    .map(new ToEvent(model, readers, each))
                    .returns(type)
                    .name("nexmark events");
        }
    }

    /** The source gives each reader a range of numbers; they become events that the readers produce in turns. */
    private static final class ToEvent implements MapFunction<Long, RowData> {
        private static final long serialVersionUID = 1L;

        private final NexmarkModel model;
        private final int readers;
        private final long each;

        ToEvent(NexmarkModel model, int readers, long each) {
            this.model = model;
            this.readers = readers;
            this.each = each;
        }

        @Override
        public RowData map(Long number) {
            return model.event(number % each * readers + number / each);
        }
    }
}
