package ndb

// table is what state_row and meta differ in; both have the columns more and v besides their key.
type table struct {
	name string
	// keyColumns is the primary key, in the order in which key writes it and scanKey reads it.
	keyColumns string
	rows       bool // state_row
	kind       string
}

var (
	rowTable  = table{name: "state_row", keyColumns: "space,key_group,state,k", rows: true, kind: "row"}
	metaTable = table{name: "meta", keyColumns: "name", kind: "meta"}
)

// key writes the literals of a primary key, without parentheses.
func (t *table) key(s *statement, k sqlKey) {
	if t.rows {
		s.number(k.space)
		s.WriteByte(',')
		s.number(uint64(k.group))
		s.WriteByte(',')
		s.number(uint64(k.state))
		s.WriteByte(',')
	}
	s.bytes([]byte(k.k))
}

// whereIn writes "WHERE (key) IN (...)".
func (t *table) whereIn(s *statement, keys []sqlKey) {
	s.WriteString(" WHERE (")
	s.WriteString(t.keyColumns)
	s.WriteString(") IN (")
	s.list(len(keys), func(i int) {
		s.WriteByte('(')
		t.key(s, keys[i])
		s.WriteByte(')')
	})
	s.WriteByte(')')
}

const chunkColumns = "space,key_group,tag,n"

// whereChunkIn writes the same for table chunk.
func whereChunkIn(s *statement, keys []chunkKey) {
	s.WriteString(" WHERE (" + chunkColumns + ") IN (")
	s.list(len(keys), func(i int) {
		s.WriteByte('(')
		writeChunkKey(s, keys[i])
		s.WriteByte(')')
	})
	s.WriteByte(')')
}

func writeChunkKey(s *statement, k chunkKey) {
	s.number(k.space)
	s.WriteByte(',')
	s.number(uint64(k.group))
	s.WriteByte(',')
	s.number(k.tag)
	s.WriteByte(',')
	s.number(uint64(k.n))
}

// cut returns the end of the longest run of items from start on that fits into one statement: at
// most maxItems, and maxBytes of literals, but at least one.
func cut(start, n, maxItems, maxBytes int, size func(i int) int) int {
	bytes := 0
	for i := start; i < n; i++ {
		bytes += size(i)
		if i > start && (i-start >= maxItems || bytes > maxBytes) {
			return i
		}
	}
	return n
}
