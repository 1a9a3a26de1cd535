package org.flinkndb.demo;

import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Writes a window's result: {@code W,carrier,origin,end,count,sum,max}. */
final class WindowLine
        extends ProcessWindowFunction<
                Tuple3<Integer, Integer, Integer>, String, String, TimeWindow> {
    private static final long serialVersionUID = 1L;

    @Override
    public void process(
            String key,
            Context context,
            Iterable<Tuple3<Integer, Integer, Integer>> results,
            Collector<String> out) {
        for (Tuple3<Integer, Integer, Integer> result : results) {
            out.collect(
                    "W,"
                            + key
                            + ","
                            + context.window().getEnd()
                            + ","
                            + result.f0
                            + ","
                            + result.f1
                            + ","
                            + result.f2);
        }
    }
}
