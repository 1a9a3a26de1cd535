package org.flinkndb.restore;

import org.apache.flink.core.fs.Path;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupsStateHandle;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.SavepointKeyedStateHandle;
import org.apache.flink.runtime.state.filesystem.FileStateHandle;
import org.flinkndb.client.OpenSpec;
import org.flinkndb.fs.SnapshotPath;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Sorts the handles that Flink hands to a new backend: references to our snapshots, which the session
 * is opened on, and canonical savepoints, which are read into it.
 */
public final class RestorePlan {
    private final List<Reference> references = new ArrayList<>();
    private final List<KeyedStateHandle> canonical = new ArrayList<>();

    /** Key groups of one of our snapshots. */
    private static final class Reference {
        private final String snapshotId;
        private final KeyGroupRange range;

        private Reference(String snapshotId, KeyGroupRange range) {
            this.snapshotId = snapshotId;
            this.range = range;
        }
    }

    /**
     * Reads the handles.
     *
     * @throws IOException for handles of other backends, saying what to do
     */
    public static RestorePlan of(Collection<KeyedStateHandle> handles, KeyGroupRange range)
            throws IOException {
        RestorePlan plan = new RestorePlan();
        for (KeyedStateHandle handle : handles) {
            if (handle == null) {
                continue;
            }
            // Ours first: they have the class of savepoints, so that other backends can read them.
            Path path = pathOf(handle);
            boolean ours = path != null && "ndb".equals(path.toUri().getScheme());
            if (!ours && handle instanceof SavepointKeyedStateHandle) {
                plan.canonical.add(handle);
                continue;
            }
            if (!ours) {
                throw new IOException(
                        "Cannot restore from "
                                + handle.getClass().getSimpleName()
                                + " ("
                                + handle
                                + "): it was written by another state backend. Take a savepoint in"
                                + " the canonical format with that backend and start from it.");
            }
            KeyGroupRange part = handle.getKeyGroupRange().getIntersection(range);
            if (part.getNumberOfKeyGroups() > 0) {
                plan.references.add(new Reference(SnapshotPath.parse(path).snapshotId(), part));
            }
        }
        if (!plan.references.isEmpty() && !plan.canonical.isEmpty()) {
            throw new IOException(
                    "Cannot restore from snapshots and canonical savepoints together.");
        }
        return plan;
    }

    private static Path pathOf(KeyedStateHandle handle) {
        if (handle instanceof KeyGroupsStateHandle
                && ((KeyGroupsStateHandle) handle).getDelegateStateHandle()
                        instanceof FileStateHandle) {
            return ((FileStateHandle) ((KeyGroupsStateHandle) handle).getDelegateStateHandle())
                    .getFilePath();
        }
        return null;
    }

    /** Adds the references to what a session is opened for. */
    public void addTo(OpenSpec spec) {
        for (Reference reference : references) {
            spec.base(
                    reference.snapshotId,
                    reference.range.getStartKeyGroup(),
                    reference.range.getEndKeyGroup());
        }
    }

    /** Canonical savepoints to be read. */
    public List<KeyedStateHandle> canonical() {
        return canonical;
    }
}
