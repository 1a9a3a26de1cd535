package org.flinkndb.state;

import java.util.Iterator;
import java.util.function.Function;

/** Another iterator's elements, each turned into something else; removal goes through. */
final class MappedIterator<A, B> implements Iterator<B> {
    private final Iterator<A> from;
    private final Function<A, B> mapping;

    MappedIterator(Iterator<A> from, Function<A, B> mapping) {
        this.from = from;
        this.mapping = mapping;
    }

    @Override
    public boolean hasNext() {
        return from.hasNext();
    }

    @Override
    public B next() {
        return mapping.apply(from.next());
    }

    @Override
    public void remove() {
        from.remove();
    }
}
