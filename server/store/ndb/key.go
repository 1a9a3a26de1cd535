package ndb

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/flinkndb/flinkndb/server/store"
)

// sqlKey is a primary key of state_row or, with k alone, of meta. It is comparable.
type sqlKey struct {
	space uint64
	group uint16
	state uint16
	k     string
}

// rowKey returns the primary key of a row.
func rowKey(key store.RowKey) sqlKey {
	return sqlKey{key.Space, key.Group, key.State, storedKey(key.Key)}
}

// String names a row in errors.
func (k sqlKey) String() string {
	if k.space == 0 {
		return fmt.Sprintf("meta record %.64q", k.k)
	}
	return store.RowKey{Space: k.space, Group: k.group, State: k.state, Key: []byte(k.k)}.Name()
}

func metaKey(name string) sqlKey { return sqlKey{k: name} }

// storedKey is what column k holds for a key: the key itself up to inlineKey bytes, else its first
// inlineKey bytes followed by its hash. So a stored key is longer than inlineKey bytes exactly if
// its key is, and stored keys are ordered as their keys are, except among long keys that have their
// first inlineKey bytes in common: these form one *hash group*.
func storedKey(key []byte) string {
	if len(key) <= inlineKey {
		return string(key)
	}
	sum := sha256.Sum256(key)
	return string(append(bytes.Clone(key[:inlineKey]), sum[:]...))
}

// isHashed says whether a stored key stands for a longer key.
func isHashed(k []byte) bool { return len(k) > inlineKey }

// appendix is the column "more" of a row whose key and value do not fit into it: which chunks hold
// the rest. The row's *payload* is the key, if it is hashed, followed by the value; its first
// inlineValue bytes are in column v, the rest is in chunks of chunkBytes.
type appendix struct {
	tag      uint64 // names the chunks within (space, key_group)
	total    uint64 // bytes of the payload
	keyBytes uint32 // bytes of the key within the payload, 0 if the key is in column k
}

const appendixBytes = 20

func (a appendix) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, appendixBytes), a.tag)
	b = binary.BigEndian.AppendUint64(b, a.total)
	return binary.BigEndian.AppendUint32(b, a.keyBytes)
}

func decodeAppendix(b []byte) (appendix, error) {
	if len(b) != appendixBytes {
		return appendix{}, fmt.Errorf("column more holds %d bytes; must be %d", len(b), appendixBytes)
	}
	a := appendix{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])}
	if uint64(a.keyBytes) > a.total || a.total > maxValueBytes+maxKeyBytes {
		return appendix{}, fmt.Errorf("column more says that %d bytes of key are in a payload of %d bytes", a.keyBytes, a.total)
	}
	return a, nil
}

// fits says whether the appendix can be that of a row: a key is in the payload exactly if it is hashed.
func (a appendix) fits(key sqlKey) error {
	if hashed := key.space != 0 && isHashed([]byte(key.k)); hashed != (a.keyBytes > 0) {
		return fmt.Errorf("column more says that the key has %d bytes of the payload, but column k holds %d bytes", a.keyBytes, len(key.k))
	}
	return nil
}

// valueBytes is the size of the row's value.
func (a appendix) valueBytes() int { return int(a.total) - int(a.keyBytes) }

// chunks is the number of chunk rows.
func (a appendix) chunks() int {
	if a.total <= inlineValue {
		return 0
	}
	return int((a.total - inlineValue + chunkBytes - 1) / chunkBytes)
}

// chunkKey is a primary key of table chunk. The chunks of meta records have space 0.
type chunkKey struct {
	space uint64
	group uint16
	tag   uint64
	n     uint32
}

// chunkKeys appends the keys of the chunks of the row with the given primary key.
func (a appendix) chunkKeys(to []chunkKey, key sqlKey) []chunkKey {
	for n := range a.chunks() {
		to = append(to, chunkKey{key.space, key.group, a.tag, uint32(n)})
	}
	return to
}
