package org.flinkndb.state;

import org.flinkndb.client.EntryBatch;
import org.flinkndb.client.ScanPage;
import org.flinkndb.client.ScanRequest;
import org.flinkndb.client.StateAccess;
import org.flinkndb.client.StateSession;

import java.io.IOException;
import java.util.concurrent.CompletableFuture;

/** Walks rows page by page and asks for the next page while this one is looked at. For one thread. */
final class RowScan {
    private final StateSession session;
    private final ScanRequest request;
    private CompletableFuture<ScanPage> ahead;
    private EntryBatch page;

    RowScan(StateSession session, ScanRequest request) {
        this.session = session;
        this.request = request;
        this.ahead = session.scan(request);
    }

    /** Walks all rows of a state, after everything that is dirty was sent. Task thread. */
    static RowScan ofState(StateContext<?> context, int wireIndex, boolean keysOnly) {
        StateAccess.run(() -> context.writeBehind().flush());
        ScanRequest all = allRows(context, wireIndex);
        return new RowScan(context.session(), keysOnly ? all.withKeysOnly() : all);
    }

    /** Asks for all rows of a state, as the server has them. */
    static ScanRequest allRows(StateContext<?> context, int wireIndex) {
        return ScanRequest.byGroup(
                wireIndex,
                context.keyGroupRange().getStartKeyGroup(),
                context.keyGroupRange().getEndKeyGroup());
    }

    /** Whether {@link #next} would answer at once. Any thread. */
    boolean ready() {
        return ahead == null || ahead.isDone();
    }

    /** Goes to the next page; false at the end. */
    boolean next() throws IOException, InterruptedException {
        if (ahead == null) {
            page = null;
            return false;
        }
        ScanPage result = session.await(ahead);
        page = result.rows();
        ahead = null;
        if (!result.done() && !page.isEmpty()) {
            int last = page.size() - 1;
            ahead = session.scan(request.after(page.group(last), page.key(last)));
        }
        return !page.isEmpty();
    }

    /** The current page. */
    EntryBatch page() {
        return page;
    }
}
