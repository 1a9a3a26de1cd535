package org.flinkndb.suite;

import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;
import org.flinkndb.testutil.ImmutableSerializer;

import java.io.IOException;
import java.util.Locale;
import java.util.Objects;

/** Texts whose {@code equals} says something else than their bytes do, and their serializers. */
final class Texts {
    private Texts() {}

    /** A name as the job gives it, or as the store gives it back; neither is equal to the other. */
    static class Name {
        final String text;

        private Name(String text) {
            this.text = text;
        }

        static Name given(String text) {
            return new Name(text);
        }

        static Name stored(String text) {
            return new StoredName(text);
        }

        @Override
        public boolean equals(Object other) {
            return other != null
                    && other.getClass() == getClass()
                    && ((Name) other).text.equals(text);
        }

        @Override
        public int hashCode() {
            return Objects.hash(getClass().getName(), text);
        }
    }

    /** A name that was stored. */
    private static final class StoredName extends Name {
        private StoredName(String text) {
            super(text);
        }
    }

    /** Equal to texts with capitals where it has none. */
    static final class Caseless {
        private final String text;

        Caseless(String text) {
            this.text = text;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Caseless && ((Caseless) other).text.equalsIgnoreCase(text);
        }

        @Override
        public int hashCode() {
            return text.toLowerCase(Locale.ROOT).hashCode();
        }
    }

    /** Writes the text alone. */
    private abstract static class TextSerializer<T> extends ImmutableSerializer<T> {
        private static final long serialVersionUID = 1L;

        abstract String text(T from);

        abstract T read(String text);

        @Override
        public T createInstance() {
            return read("");
        }

        @Override
        public void serialize(T from, DataOutputView target) throws IOException {
            target.writeUTF(text(from));
        }

        @Override
        public T deserialize(DataInputView source) throws IOException {
            return read(source.readUTF());
        }

        @Override
        public void copy(DataInputView source, DataOutputView target) throws IOException {
            target.writeUTF(source.readUTF());
        }
    }

    /** Reads names as stored ones. */
    public static final class NameSerializer extends TextSerializer<Name> {
        private static final long serialVersionUID = 1L;

        @Override
        String text(Name from) {
            return from.text;
        }

        @Override
        Name read(String text) {
            return Name.stored(text);
        }

        @Override
        public TypeSerializerSnapshot<Name> snapshotConfiguration() {
            return new NameSerializerSnapshot();
        }
    }

    /** There is one format only. */
    public static final class NameSerializerSnapshot extends SimpleTypeSerializerSnapshot<Name> {
        public NameSerializerSnapshot() {
            super(NameSerializer::new);
        }
    }

    /** Keeps the case. */
    public static final class CaselessSerializer extends TextSerializer<Caseless> {
        private static final long serialVersionUID = 1L;

        @Override
        String text(Caseless from) {
            return from.text;
        }

        @Override
        Caseless read(String text) {
            return new Caseless(text);
        }

        @Override
        public TypeSerializerSnapshot<Caseless> snapshotConfiguration() {
            return new CaselessSerializerSnapshot();
        }
    }

    /** There is one format only. */
    public static final class CaselessSerializerSnapshot
            extends SimpleTypeSerializerSnapshot<Caseless> {
        public CaselessSerializerSnapshot() {
            super(CaselessSerializer::new);
        }
    }
}
