package ndb

import (
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
)

// change is a row to write (value not nil) or to remove.
type change struct {
	key   sqlKey
	full  []byte // the whole key if key.k is its hash, else nil
	value []byte
}

// payloadSize is the size of what payload returns, and whether that needs an appendix.
func (ch *change) payloadSize() (bytes int, long bool) {
	bytes = len(ch.full) + len(ch.value)
	return bytes, ch.full != nil || bytes > inlineValue
}

// payload returns what of the row goes beyond column k, and whether that needs an appendix.
func (ch *change) payload() (payload []byte, long bool) {
	if ch.full == nil {
		return ch.value, len(ch.value) > inlineValue
	}
	return append(append(make([]byte, 0, len(ch.full)+len(ch.value)), ch.full...), ch.value...), true
}

// writer collects the statements of one bulk write. Rows with an appendix have written their chunks
// before, under a fresh tag, so that a reader finds either all the old or all the new ones.
type writer struct {
	session *session
	table   *table
	// rows is the REPLACE under construction; count its rows.
	rows  statement
	count int
	// chunks is the INSERT under construction; chunkCount its rows.
	chunks     statement
	chunkCount int
	onLong     func(sqlKey, appendix)
}

// replace writes rows. onLong is told of the appendix of each long one.
func (c *session) replace(t *table, changes []change, onLong func(sqlKey, appendix)) error {
	w := &writer{session: c, table: t, onLong: onLong}
	for i := range changes {
		if err := w.add(&changes[i]); err != nil {
			return err
		}
	}
	if err := w.flushChunks(); err != nil {
		return err
	}
	return w.flushRows()
}

func (w *writer) add(ch *change) error {
	payload, long := ch.payload()
	var more []byte
	head := payload
	if long {
		a := appendix{tag: rand.Uint64(), total: uint64(len(payload)), keyBytes: uint32(len(ch.full))}
		head = payload[:min(len(payload), inlineValue)]
		if err := w.addChunks(ch.key, a, payload[len(head):]); err != nil {
			return err
		}
		more = a.encode()
		w.onLong(ch.key, a)
	}
	if w.count >= maxStatementRows || w.count > 0 && w.rows.Len()+2*(len(ch.key.k)+len(head)) > 2*w.session.maxBytes {
		if err := w.flushRows(); err != nil {
			return err
		}
	}
	if w.count == 0 {
		w.rows.WriteString("REPLACE INTO " + w.table.name + " (" + w.table.keyColumns + ",more,v) VALUES ")
	} else {
		w.rows.WriteByte(',')
	}
	w.count++
	w.rows.WriteByte('(')
	w.table.key(&w.rows, ch.key)
	if more == nil {
		w.rows.WriteString(",NULL,")
	} else {
		w.rows.WriteByte(',')
		w.rows.bytes(more)
		w.rows.WriteByte(',')
	}
	w.rows.bytes(head)
	w.rows.WriteByte(')')
	return nil
}

func (w *writer) addChunks(key sqlKey, a appendix, rest []byte) error {
	for n := 0; len(rest) > 0; n++ {
		part := rest[:min(len(rest), chunkBytes)]
		rest = rest[len(part):]
		if w.chunkCount >= maxStatementRows || w.chunkCount > 0 && w.chunks.Len()+2*len(part) > 2*w.session.maxBytes {
			if err := w.flushChunks(); err != nil {
				return err
			}
		}
		if w.chunkCount == 0 {
			// INSERT, not REPLACE: should a random tag be taken, the transaction fails instead of
			// damaging another row.
			w.chunks.WriteString("INSERT INTO chunk (" + chunkColumns + ",v) VALUES ")
		} else {
			w.chunks.WriteByte(',')
		}
		w.chunkCount++
		w.chunks.WriteByte('(')
		writeChunkKey(&w.chunks, chunkKey{key.space, key.group, a.tag, uint32(n)})
		w.chunks.WriteByte(',')
		w.chunks.bytes(part)
		w.chunks.WriteByte(')')
	}
	return nil
}

func (w *writer) flushRows() error {
	if w.count == 0 {
		return nil
	}
	if _, err := w.session.exec(w.rows.String()); err != nil {
		return err
	}
	w.session.metrics.statement("put_"+w.table.kind, w.count)
	w.rows.Reset()
	w.count = 0
	return nil
}

func (w *writer) flushChunks() error {
	if w.chunkCount == 0 {
		return nil
	}
	if _, err := w.session.exec(w.chunks.String()); err != nil {
		return err
	}
	w.session.metrics.statement("put_chunk", w.chunkCount)
	w.chunks.Reset()
	w.chunkCount = 0
	return nil
}

// remove removes rows by key.
func (c *session) remove(t *table, keys []sqlKey) error {
	for start := 0; start < len(keys); {
		end := cut(start, len(keys), maxStatementRows, c.maxBytes, func(i int) int { return len(keys[i].k) + keyOverhead })
		var st statement
		st.WriteString("DELETE FROM " + t.name)
		t.whereIn(&st, keys[start:end])
		if _, err := c.exec(st.String()); err != nil {
			return err
		}
		c.metrics.statement("delete_"+t.kind, end-start)
		start = end
	}
	return nil
}

// removeChunks removes chunks by key.
func (c *session) removeChunks(keys []chunkKey) error {
	for start := 0; start < len(keys); {
		end := min(start+maxStatementRows, len(keys))
		var st statement
		st.WriteString("DELETE FROM chunk")
		whereChunkIn(&st, keys[start:end])
		if _, err := c.exec(st.String()); err != nil {
			return err
		}
		c.metrics.statement("delete_chunk", end-start)
		start = end
	}
	return nil
}

// appendices returns the appendices of those of the rows that have one.
func (c *session) appendices(t *table, keys []sqlKey) (map[sqlKey]appendix, error) {
	found := map[sqlKey]appendix{}
	for start := 0; start < len(keys); {
		end := cut(start, len(keys), maxStatementRows, c.maxBytes, func(i int) int { return len(keys[i].k) + keyOverhead })
		var st statement
		st.WriteString("SELECT " + t.keyColumns + ",more FROM " + t.name)
		t.whereIn(&st, keys[start:end])
		st.WriteString(" AND more IS NOT NULL")
		err := c.query(st.String(), func(columns []driver.Value) error {
			key, rest, err := t.readKey(columns)
			if err != nil {
				return err
			}
			more, err := asBytes(rest[0])
			if err != nil {
				return err
			}
			a, err := decodeAppendix(more)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			found[key] = a
			return nil
		})
		if err != nil {
			return nil, err
		}
		c.metrics.statement("appendix_"+t.kind, end-start)
		start = end
	}
	return found, nil
}
