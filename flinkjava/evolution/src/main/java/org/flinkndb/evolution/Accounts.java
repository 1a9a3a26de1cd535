package org.flinkndb.evolution;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.formats.avro.typeutils.AvroSerializer;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

import java.util.ArrayList;
import java.util.List;

/** Keeps accounts of a key's numbers in value, list and map state, and a receipt in Avro. */
final class Accounts extends KeyedProcessFunction<Long, Long, String> {
    private static final long serialVersionUID = 1L;
    private static final int RECENT = 4;
    private static final int PARTS = 3;

    private final long keys;
    private final long records;
    private transient ValueState<Account> account;
    private transient ListState<Account> recent;
    private transient MapState<Long, Account> parts;
    private transient ValueState<Receipt> receipt;

    Accounts(long keys, long records) {
        this.keys = keys;
        this.records = records;
    }

    @Override
    public void open(OpenContext context) {
        account =
                getRuntimeContext()
                        .getState(new ValueStateDescriptor<>("account", Types.POJO(Account.class)));
        recent =
                getRuntimeContext()
                        .getListState(
                                new ListStateDescriptor<>("recent", Types.POJO(Account.class)));
        parts =
                getRuntimeContext()
                        .getMapState(
                                new MapStateDescriptor<>(
                                        "parts", Types.LONG, Types.POJO(Account.class)));
        receipt =
                getRuntimeContext()
                        .getState(
                                new ValueStateDescriptor<>(
                                        "receipt", new AvroSerializer<>(Receipt.class)));
    }

    @Override
    public void processElement(Long number, Context context, Collector<String> out)
            throws Exception {
        long key = context.getCurrentKey();
        Account all = Account.next(account.value(), number, key, keys);
        account.update(all);
        remember(all);
        long turn = (number / keys) % PARTS; // the numbers of a key go to its parts in turn
        parts.put(turn, Account.next(parts.get(turn), number, key + turn * keys, keys * PARTS));
        receipt.update(Receipt.next(receipt.value(), number, all.count));
        if (number + keys >= records) {
            out.collect("EVOLVED " + key + " " + all.count + " " + all.sinceNumber());
        }
    }

    /** The list holds the newest accounts, and the newest of them is the one before this. */
    private void remember(Account newest) throws Exception {
        List<Account> list = new ArrayList<>();
        recent.get().forEach(list::add);
        for (int i = 0; i < list.size(); i++) {
            long expected = newest.count - list.size() + i;
            if (list.get(i).count != expected) {
                throw new IllegalStateException(
                        "VIOLATION: entry "
                                + i
                                + " of the list has count "
                                + list.get(i).count
                                + ", expected "
                                + expected);
            }
        }
        if (list.size() != Math.min(RECENT, newest.count - 1)) {
            throw new IllegalStateException("VIOLATION: the list has " + list.size() + " entries");
        }
        if (list.size() < RECENT) {
            recent.add(newest);
        } else {
            list.remove(0);
            list.add(newest);
            recent.update(list);
        }
    }
}
