package lineage

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// versionKind says what a version does to the row.
type versionKind byte

const (
	kindFull      versionKind = 1 // the value
	kindTombstone versionKind = 2 // no value
	kindAppend    versionKind = 3 // continues the version below
)

// rowFormat is the first byte of a stored row.
const rowFormat = 1

// listDelimiter stands between the elements of a list, as in Flink's ListDelimitedSerializer.
const listDelimiter = ','

// errCorruptRow says that the bytes of a row are not what encodeRow makes.
var errCorruptRow = errors.New("corrupt row")

// version is a row's value as of a stamp. value aliases the bytes that it was decoded from.
type version struct {
	kind  versionKind
	stamp stamp
	value []byte
}

// decodeRow appends the versions of a stored row to buf, newest first.
func decodeRow(raw []byte, buf []version) ([]version, error) {
	if len(raw) == 0 || raw[0] != rowFormat {
		return nil, fmt.Errorf("%w: unknown format", errCorruptRow)
	}
	rest := raw[1:]
	for len(rest) > 0 {
		v, n := decodeVersion(rest)
		if n <= 0 {
			return nil, fmt.Errorf("%w: version at byte %d", errCorruptRow, len(raw)-len(rest))
		}
		if k := len(buf); k > 0 && !newer(buf[k-1].stamp, v.stamp) {
			return nil, fmt.Errorf("%w: versions out of order", errCorruptRow)
		}
		buf = append(buf, v)
		rest = rest[n:]
	}
	return buf, nil
}

// decodeVersion reads one version and says how many bytes it took, 0 if they make no sense.
func decodeVersion(raw []byte) (version, int) {
	kind := versionKind(raw[0])
	if kind < kindFull || kind > kindAppend {
		return version{}, 0
	}
	at := 1
	gen, n := binary.Uvarint(raw[at:])
	if n <= 0 {
		return version{}, 0
	}
	at += n
	epoch, n := binary.Uvarint(raw[at:])
	if n <= 0 {
		return version{}, 0
	}
	at += n
	v := version{kind: kind, stamp: stamp{gen, epoch}}
	if kind == kindTombstone {
		return v, at
	}
	length, n := binary.Uvarint(raw[at:])
	if n <= 0 {
		return version{}, 0
	}
	at += n
	if length > uint64(len(raw)-at) {
		return version{}, 0
	}
	end := at + int(length)
	v.value = raw[at:end:end]
	return v, end
}

// encodeRow is the inverse of decodeRow.
func encodeRow(versions []version) []byte {
	return appendRow(make([]byte, 0, encodedSize(versions)), versions)
}

// encodedSize is an upper bound of the bytes that encodeRow returns.
func encodedSize(versions []version) int {
	size := 1
	for i := range versions {
		size += 1 + 3*binary.MaxVarintLen64 + len(versions[i].value)
	}
	return size
}

// appendRow appends what encodeRow returns.
func appendRow(raw []byte, versions []version) []byte {
	raw = append(raw, rowFormat)
	for i := range versions {
		v := &versions[i]
		raw = append(raw, byte(v.kind))
		raw = binary.AppendUvarint(raw, v.stamp.Gen)
		raw = binary.AppendUvarint(raw, v.stamp.Epoch)
		if v.kind != kindTombstone {
			raw = binary.AppendUvarint(raw, uint64(len(v.value)))
			raw = append(raw, v.value...)
		}
	}
	return raw
}

// newer says whether a was written after b.
func newer(a, b stamp) bool {
	return a.Gen > b.Gen || a.Gen == b.Gen && a.Epoch > b.Epoch
}

// put places a value or tombstone on top; of the same stamp it replaces what is there.
func put(versions []version, v version) []version {
	if len(versions) > 0 && versions[0].stamp == v.stamp {
		versions[0] = v
		return versions
	}
	return push(versions, v)
}

// appendTo continues the row with list elements; of the same stamp it extends what is there.
func appendTo(versions []version, at stamp, elements []byte) []version {
	if len(versions) == 0 || versions[0].stamp != at {
		return push(versions, version{kindAppend, at, elements})
	}
	top := &versions[0]
	if top.kind == kindTombstone {
		*top = version{kindFull, at, elements}
		return versions
	}
	top.value = join(top.value, elements)
	return versions
}

func push(versions []version, v version) []version {
	versions = append(versions, version{})
	copy(versions[1:], versions)
	versions[0] = v
	return versions
}

// join makes one list value of two.
func join(head, tail []byte) []byte {
	joined := make([]byte, 0, len(head)+1+len(tail))
	joined = append(joined, head...)
	joined = append(joined, listDelimiter)
	return append(joined, tail...)
}

// resolution is what a reader finds in the rows of one key, layer by layer.
type resolution struct {
	decided bool     // a full version or tombstone was found: deeper layers do not matter
	found   bool     // there is a value
	base    []byte   // full value, if any
	appends [][]byte // newest first
}

// add looks for the newest visible versions of one layer. It returns whether the search is over.
func (r *resolution) add(versions []version, h History) bool {
	for _, v := range versions {
		if !h.sees(v.stamp) {
			continue
		}
		switch v.kind {
		case kindAppend:
			r.found = true
			r.appends = append(r.appends, v.value)
		case kindFull:
			r.found, r.decided, r.base = true, true, v.value
			return true
		case kindTombstone:
			r.decided = true
			return true
		}
	}
	return false
}

// size is the length of what the reader gets.
func (r *resolution) size() int {
	size := len(r.base)
	for _, a := range r.appends {
		size += len(a)
	}
	if n := len(r.appends); n > 0 {
		size += n - 1
		if r.base != nil {
			size++
		}
	}
	return size
}

// value is what the reader gets; nil when there is none.
func (r *resolution) value() []byte {
	if !r.found {
		return nil
	}
	if len(r.appends) == 0 {
		if r.base == nil {
			return []byte{}
		}
		return r.base
	}
	joined := make([]byte, 0, r.size())
	hasBase := r.decided && r.base != nil
	if hasBase {
		joined = append(joined, r.base...)
	}
	for i := len(r.appends) - 1; i >= 0; i-- {
		if hasBase || i < len(r.appends)-1 {
			joined = append(joined, listDelimiter)
		}
		joined = append(joined, r.appends[i]...)
	}
	return joined
}

// trim drops the versions that no view needs and joins appends that no view tells apart. With
// bottom set nothing lies below the row, so that a tombstone at the end says nothing. An empty
// result means that the row can go.
func trim(versions []version, views []History, bottom bool) []version {
	var few [8]bool
	needed := append(few[:0], make([]bool, len(versions))...)
	for _, h := range views {
		for i, v := range versions {
			if !h.sees(v.stamp) {
				continue
			}
			needed[i] = true
			if v.kind != kindAppend {
				break
			}
		}
	}
	kept := versions[:0]
	for i, v := range versions {
		if needed[i] {
			kept = append(kept, v)
		}
	}
	if bottom {
		kept = trimBottom(kept)
	}
	return joinAppends(kept, views)
}

// trimBottom drops tombstones at the end, and makes an append at the end a value.
func trimBottom(versions []version) []version {
	for n := len(versions); n > 0; n = len(versions) {
		last := &versions[n-1]
		if last.kind == kindAppend {
			last.kind = kindFull
		}
		if last.kind != kindTombstone {
			break
		}
		versions = versions[:n-1]
	}
	return versions
}

func joinAppends(versions []version, views []History) []version {
	for i := len(versions) - 2; i >= 0; i-- {
		upper, lower := &versions[i], versions[i+1]
		if upper.kind != kindAppend || lower.kind == kindTombstone || !sameToAll(views, upper.stamp, lower.stamp) {
			continue
		}
		upper.kind = lower.kind
		upper.value = join(lower.value, upper.value)
		versions = append(versions[:i+1], versions[i+2:]...)
	}
	return versions
}

func sameToAll(views []History, a, b stamp) bool {
	for _, h := range views {
		if h.sees(a) != h.sees(b) {
			return false
		}
	}
	return true
}
