package ndb

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
)

// maxStatementRows is how many rows a statement reads, writes or removes: enough that the cost of a
// statement does not show, few enough that one does not hold the server's memory.
const maxStatementRows = 1000

// keyOverhead is what a key takes in a statement besides its bytes: numbers, quotes, commas.
const keyOverhead = 48

// errTorn says that a long value changed between the reading of its row and of its chunks.
var errTorn = errors.New("a long value changed while it was read")

// lookup reads rows of one table by key.
type lookup struct {
	table *table
	keys  []sqlKey
	// full returns the whole key of keys[i] where it is hashed.
	full func(i int) []byte
	// values[i] becomes the value of keys[i]; it stays nil if there is no such row.
	values [][]byte
	// lock holds the rows exclusively until the transaction ends.
	lock bool
	// onLong, if set, is told of rows that have an appendix.
	onLong func(i int, a appendix)
}

// longRow is a row whose chunks are still to be read.
type longRow struct {
	index    int // into lookup.keys
	appendix appendix
	head     []byte
}

// get performs a lookup. It fails with errTorn if a long value changes meanwhile.
func (c *session) get(l *lookup) error {
	for start := 0; start < len(l.keys); {
		end := cut(start, len(l.keys), maxStatementRows, c.maxBytes, func(i int) int { return len(l.keys[i].k) + keyOverhead })
		long, repeated, err := c.getSome(l, start, end)
		if err != nil {
			return err
		}
		if err := c.getLong(l, long); err != nil {
			return err
		}
		for i, first := range repeated {
			if l.values[first] != nil {
				l.values[i] = clone(l.values[first])
			}
		}
		start = end
	}
	return nil
}

// getSome reads keys[start:end] with one statement. It returns the rows that have more elsewhere,
// and for keys that occur again the index of their first occurrence.
func (c *session) getSome(l *lookup, start, end int) (long []longRow, repeated map[int]int, err error) {
	var st statement
	st.Grow((end - start) * (keyOverhead + 2*len(l.keys[start].k)))
	st.WriteString("SELECT " + l.table.keyColumns + ",more,v FROM " + l.table.name)
	l.table.whereIn(&st, l.keys[start:end])
	if l.lock {
		st.WriteString(" FOR UPDATE")
	}
	index := make(map[sqlKey]int, end-start)
	for i := start; i < end; i++ {
		first, again := index[l.keys[i]]
		if !again {
			index[l.keys[i]] = i
			continue
		}
		if repeated == nil {
			repeated = map[int]int{}
		}
		repeated[i] = first
	}
	found := 0
	err = c.query(st.String(), func(columns []driver.Value) error {
		found++
		row, err := l.take(index, columns)
		if err == nil && row != nil {
			long = append(long, *row)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	c.metrics.statement("get_"+l.table.kind, found)
	return long, repeated, nil
}

// take files one row of an answer. It returns the row if it has an appendix.
func (l *lookup) take(index map[sqlKey]int, columns []driver.Value) (*longRow, error) {
	key, rest, err := l.table.readKey(columns)
	if err != nil {
		return nil, fmt.Errorf("key of a row of table %s: %w", l.table.name, err)
	}
	i, ok := index[key]
	if !ok {
		return nil, fmt.Errorf("%s: the server returned it although it was not asked for", key)
	}
	a, v, err := readValue(rest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if a == nil {
		l.values[i] = clone(v)
		return nil, nil
	}
	if err := a.fits(key); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if l.onLong != nil {
		l.onLong(i, *a)
	}
	return &longRow{index: i, appendix: *a, head: clone(v)}, nil
}

// readValue reads the columns more and v; without an appendix it returns nil for it.
func readValue(columns []driver.Value) (*appendix, []byte, error) {
	more, err1 := asBytes(columns[0])
	v, err2 := asBytes(columns[1])
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}
	if more == nil {
		return nil, v, nil
	}
	a, err := decodeAppendix(more)
	return &a, v, err
}

// readKey reads the columns that keyColumns names and returns the remaining ones.
func (t *table) readKey(columns []driver.Value) (sqlKey, []driver.Value, error) {
	if !t.rows {
		name, err := asBytes(columns[0])
		return sqlKey{k: string(name)}, columns[1:], err
	}
	space, err1 := asUint(columns[0])
	group, err2 := asUint16(columns[1])
	state, err3 := asUint16(columns[2])
	k, err4 := asBytes(columns[3])
	return sqlKey{space, group, state, string(k)}, columns[4:], errors.Join(err1, err2, err3, err4)
}

// getLong completes rows that have an appendix.
func (c *session) getLong(l *lookup, long []longRow) error {
	if len(long) == 0 {
		return nil
	}
	payloads, err := c.payloads(long, func(r longRow) sqlKey { return l.keys[r.index] })
	if err != nil {
		return err
	}
	for n, row := range long {
		payload := payloads[n]
		keyBytes := int(row.appendix.keyBytes)
		if keyBytes > 0 && !bytes.Equal(payload[:keyBytes], l.full(row.index)) {
			return fmt.Errorf("%s: it holds another key, of %d bytes: two keys have the same SHA-256, or the row is damaged", l.keys[row.index], keyBytes)
		}
		l.values[row.index] = payload[keyBytes:]
	}
	return nil
}

// payloads reads the chunks of rows and returns their whole payloads.
func (c *session) payloads(long []longRow, key func(longRow) sqlKey) ([][]byte, error) {
	payloads := make([][]byte, len(long))
	var keys []chunkKey
	at := map[chunkKey][]byte{} // where each chunk goes
	for n, row := range long {
		total := int(row.appendix.total)
		if copied := min(len(row.head), total); copied != min(inlineValue, total) {
			return nil, fmt.Errorf("%s: it holds %d bytes of a payload of %d", key(row), copied, total)
		}
		payload := make([]byte, total)
		copy(payload, row.head)
		payloads[n] = payload
		first := len(keys)
		keys = row.appendix.chunkKeys(keys, key(row))
		for i, k := range keys[first:] {
			from := inlineValue + i*chunkBytes
			at[k] = payload[from:min(from+chunkBytes, len(payload))]
		}
	}
	for start := 0; start < len(keys); {
		end := min(start+maxStatementRows, len(keys))
		if err := c.getChunks(keys[start:end], at); err != nil {
			return nil, err
		}
		start = end
	}
	return payloads, nil
}

func (c *session) getChunks(keys []chunkKey, at map[chunkKey][]byte) error {
	var st statement
	st.WriteString("SELECT " + chunkColumns + ",v FROM chunk")
	whereChunkIn(&st, keys)
	found := 0
	seen := make(map[chunkKey]bool, len(keys))
	err := c.query(st.String(), func(columns []driver.Value) error {
		space, err1 := asUint(columns[0])
		group, err2 := asUint16(columns[1])
		tag, err3 := asUint(columns[2])
		n, err4 := asUint32(columns[3])
		v, err5 := asBytes(columns[4])
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			return fmt.Errorf("row of table chunk: %w", err)
		}
		chunk := chunkKey{space, group, tag, n}
		to, ok := at[chunk]
		if !ok || len(v) < len(to) { // it may be longer: a scan of keys needs no more of it
			return fmt.Errorf("chunk %d of tag %d in space %d, group %d: it holds %d bytes, needed are %d", n, tag, space, group, len(v), len(to))
		}
		if seen[chunk] {
			return fmt.Errorf("chunk %d of tag %d in space %d, group %d: the server returned it twice", n, tag, space, group)
		}
		seen[chunk] = true
		copy(to, v)
		found++
		return nil
	})
	if err != nil {
		return err
	}
	c.metrics.statement("get_chunk", found)
	if found != len(keys) {
		return errTorn
	}
	return nil
}
