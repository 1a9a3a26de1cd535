package org.flinkndb.state;

/** Key and namespace of an entry. Immutable. */
final class Address<K, N> {
    private final K key;
    private final N namespace;

    Address(K key, N namespace) {
        this.key = key;
        this.namespace = namespace;
    }

    K key() {
        return key;
    }

    N namespace() {
        return namespace;
    }
}
