package org.flinkndb.testjobs.nexmark;

import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.RowKind;

import java.util.List;
import java.util.Objects;

/**
 * Adds up a result: the accumulator "digest" is the sum of the hashes of the rows that remain when all
 * changes are applied, so it tells whether two runs came to the same result, whatever the order of
 * their changes was. "changes" counts them.
 */
final class DigestSink implements DynamicTableSink {
    private final LogicalType row;

    DigestSink(LogicalType row) {
        this.row = row;
    }

    @Override
    public ChangelogMode getChangelogMode(ChangelogMode requested) {
        return ChangelogMode.all();
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
        Digest digest = new Digest(row);
        return new DataStreamSinkProvider() {
            @Override
            public DataStreamSink<?> consumeDataStream(
                    ProviderContext providerContext, DataStream<RowData> changes) {
                return changes.filter(digest).name("digest").sinkTo(new DiscardingSink<>());
            }
        };
    }

    @Override
    public DynamicTableSink copy() {
        return new DigestSink(row);
    }

    @Override
    public String asSummaryString() {
        return "digest";
    }

    /** Lets nothing pass. */
    private static final class Digest extends RichFilterFunction<RowData> {
        private static final long serialVersionUID = 1L;

        private final RowData.FieldGetter[] fields;
        private transient LongCounter digest;
        private transient LongCounter changes;

        Digest(LogicalType row) {
            List<LogicalType> types = row.getChildren();
            fields = new RowData.FieldGetter[types.size()];
            for (int i = 0; i < fields.length; i++) {
                fields[i] = RowData.createFieldGetter(types.get(i), i);
            }
        }

        @Override
        public void open(OpenContext context) {
            digest = new LongCounter();
            changes = new LongCounter();
            getRuntimeContext().addAccumulator("digest", digest);
            getRuntimeContext().addAccumulator("changes", changes);
        }

        @Override
        public boolean filter(RowData change) {
            long hash = 1;
            for (RowData.FieldGetter field : fields) {
                hash = hash * 0x9E3779B97F4A7C15L + Objects.hashCode(field.getFieldOrNull(change));
                hash ^= hash >>> 29;
            }
            RowKind kind = change.getRowKind();
            boolean added = kind == RowKind.INSERT || kind == RowKind.UPDATE_AFTER;
            digest.add(added ? hash : -hash);
            changes.add(1);
            return false;
        }
    }
}
