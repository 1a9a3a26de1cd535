package org.flinkndb.demo;

import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.util.Collector;

import java.util.List;

/**
 * Remembers how far the events' time has come, and says so first after a restore. Flink does not keep
 * watermarks in checkpoints: without this, the first flight after a restore would never be late, and
 * results would depend on when a failure happened. For parallelism 1.
 */
final class Clock implements FlatMapFunction<Event, Event>, CheckpointedFunction {
    private static final long serialVersionUID = 1L;

    private transient ListState<Long> stored;
    private transient long latest;
    private transient boolean tell;

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
        stored =
                context.getOperatorStateStore()
                        .getListState(new ListStateDescriptor<>("latest", Types.LONG));
        latest = Long.MIN_VALUE;
        for (Long timestamp : stored.get()) {
            latest = timestamp;
            tell = true;
        }
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
        stored.update(latest == Long.MIN_VALUE ? List.of() : List.of(latest));
    }

    @Override
    public void flatMap(Event event, Collector<Event> out) {
        if (tell) {
            tell = false;
            out.collect(Event.clock(latest));
        }
        latest = Math.max(latest, event.timestamp);
        out.collect(event);
    }
}
