"""A PyFlink job that keeps state of every kind in Python functions, and aggregates with one of its own.

usage: orders.py RECORDS RATE OUTPUT

Number i goes to key i % 100. At the end of the input a timer of each key prints what its states hold; beside it a
table aggregates the same numbers with an aggregate function written in Python. Changes go to files in
OUTPUT, as lines "kind query +I[row]".
"""

import sys
import time

from pyflink.common import Encoder, Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, RollingPolicy
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from pyflink.table import AggregateFunction, DataTypes, StreamTableEnvironment
from pyflink.table.expressions import call, col
from pyflink.table.udf import udaf

KEYS = 100
END = 2**62


class Throttle(MapFunction):
    """Lets through so many records a second; 0 = all that come."""

    def __init__(self, rate):
        self.rate = rate
        self.start = 0.0
        self.passed = 0

    def open(self, runtime_context):
        self.start = time.monotonic()

    def map(self, value):
        self.passed += 1
        if self.rate > 0:
            early = self.start + self.passed / self.rate - time.monotonic()
            if early > 0:
                time.sleep(early)
        return value


class NumberIsTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


class History(KeyedProcessFunction):
    """Keeps the history of a key in a value, a list, a map and a sum, and prints it when all has been read."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self.digits = runtime_context.get_map_state(
            MapStateDescriptor("digits", Types.STRING(), Types.LONG())
        )
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )

    def process_element(self, value, ctx):
        count = self.count.value()
        if count is None:
            count = 0
            ctx.timer_service().register_event_time_timer(END)
        self.count.update(count + 1)
        self.sum.add(value)
        self.last.add(value)
        if count % 10 == 9:
            self.last.update(list(self.last.get())[-3:])
        digit = str(value // KEYS % 10)
        self.digits.put(digit, (self.digits.get(digit) or 0) + 1)
        return iter(())

    def on_timer(self, timestamp, ctx):
        digits = sorted(self.digits.items())
        yield "+I history +I[%d, %d, %d, %s, %s]" % (
            ctx.get_current_key(),
            self.count.value(),
            self.sum.get(),
            list(self.last.get()),
            digits,
        )


class Spread(AggregateFunction):
    """The largest number less the smallest."""

    def create_accumulator(self):
        return Row(None, None)

    def get_value(self, accumulator):
        return None if accumulator[0] is None else accumulator[1] - accumulator[0]

    def accumulate(self, accumulator, value):
        accumulator[0] = value if accumulator[0] is None else min(accumulator[0], value)
        accumulator[1] = value if accumulator[1] is None else max(accumulator[1], value)

    def get_result_type(self):
        return DataTypes.BIGINT()

    def get_accumulator_type(self):
        return DataTypes.ROW(
            [DataTypes.FIELD("least", DataTypes.BIGINT()), DataTypes.FIELD("most", DataTypes.BIGINT())]
        )


def main(records, rate, output):
    env = StreamExecutionEnvironment.get_execution_environment()
    tables = StreamTableEnvironment.create(env)
    numbers = (
        env.from_source(
            NumberSequenceSource(0, records - 1),
            WatermarkStrategy.no_watermarks(),
            "numbers",
            Types.LONG(),
        )
        .set_parallelism(1)
        .map(Throttle(rate), Types.LONG())
        .set_parallelism(1)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(NumberIsTime())
        )
        .set_parallelism(1)
    )
    histories = numbers.key_by(lambda i: i % KEYS, Types.LONG()).process(History(), Types.STRING())

    spread = udaf(Spread())
    rows = numbers.map(lambda i: Row(i % KEYS, i), Types.ROW([Types.LONG(), Types.LONG()]))
    spreads = (
        tables.from_data_stream(rows)
        .alias("k", "v")
        .group_by(col("k"))
        .select(col("k"), call(spread, col("v")).alias("spread"))
    )
    changes = tables.to_changelog_stream(spreads).map(
        lambda row: "%s spread +I[%d, %d]" % (row.get_row_kind(), row[0], row[1]), Types.STRING()
    )

    sink = (
        FileSink.for_row_format(output, Encoder.simple_string_encoder())
        .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        .build()
    )
    histories.union(changes).sink_to(sink)
    env.execute("pyflink")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
