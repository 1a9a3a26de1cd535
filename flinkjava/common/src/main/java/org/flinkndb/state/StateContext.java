package org.flinkndb.state;

import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;
import org.flinkndb.cache.CacheBudget;
import org.flinkndb.cache.WriteBehind;
import org.flinkndb.client.StateSession;
import org.flinkndb.timer.FiringTimers;

/** What a state object needs of its backend. Implemented by the keyed state backend. */
public interface StateContext<K> {
    /** Key of the record being processed; null outside of one. Task thread. */
    K currentKey();

    /** Key group of the current key. Task thread. */
    int currentKeyGroup();

    /** Serializer for keys, for the task thread; others duplicate it. */
    TypeSerializer<K> keySerializer();

    int numberOfKeyGroups();

    KeyGroupRange keyGroupRange();

    ExecutionConfig executionConfig();

    ClassLoader userClassLoader();

    TtlTimeProvider ttlTimeProvider();

    StateSession session();

    WriteBehind writeBehind();

    CacheBudget.Account cacheAccount();

    /** Tells which timers fire next. Task thread. */
    FiringTimers firingTimers();

    /** What depends on the Flink line when serializers change. */
    SerializerSupport serializers();
}
