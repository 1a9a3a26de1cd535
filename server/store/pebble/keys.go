package pebble

import (
	"encoding/binary"

	"github.com/flinkndb/flinkndb/server/store"
)

// The first byte of a key in Pebble says what it is.
const (
	tagMeta = 'm' // then the meta key
	tagRow  = 'r' // then space (8 bytes), group (2), state (2), big-endian, and the row's key
)

const rowPrefixBytes = 1 + 8 + 2 + 2

func appendRowPrefix(buf []byte, space uint64, group, state uint16) []byte {
	buf = append(buf, tagRow)
	buf = binary.BigEndian.AppendUint64(buf, space)
	buf = binary.BigEndian.AppendUint16(buf, group)
	return binary.BigEndian.AppendUint16(buf, state)
}

func appendRowKey(buf []byte, k store.RowKey) []byte {
	return append(appendRowPrefix(buf, k.Space, k.Group, k.State), k.Key...)
}

func metaName(key string) []byte {
	return append([]byte{tagMeta}, key...)
}

func spacePrefix(space uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tagRow}, space)
}

// prefixEnd is the smallest key above all keys with a prefix. Every prefix here begins with a tag, so
// there is one.
func prefixEnd(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		end[i]++
		if end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}
