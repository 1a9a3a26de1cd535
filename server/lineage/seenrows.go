package lineage

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
)

// changeSlots is how many groups of rows, by hash, are told apart while they are written.
const changeSlots = 1 << 12

// seenRows is what is cached of one session's rows. What a session sees of a row changes by its own writes only: others
// that write, sweep or flatten keep what it sees. So the cache must hear of these writes, and of streams at other
// servers, which write unheard: each new stream begins with nothing cached. For any goroutine.
//
// A read goes on while rows are written and may find the row as it was before: what it found is kept only if no write
// of such a row was under way when it began, or has begun since.
type seenRows struct {
	cache *rowCache
	seed  maphash.Seed

	mu sync.Mutex
	// usable is false from a failed write, which may happen yet, to the next stream: that finds out.
	usable bool
	// views name, for each state, what is cached of it. To forget all of it, another one is taken.
	views   []uint64
	writing [changeSlots]uint32 // rows that are being written
	begun   [changeSlots]uint32 // rows whose writing has begun, ever
}

func newSeenRows(cache *rowCache) *seenRows {
	return &seenRows{cache: cache, seed: maphash.MakeSeed()}
}

// addState makes room for one more state.
func (r *seenRows) addState() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.views = append(r.views, r.cache.views.Add(1))
}

// startStream forgets everything: other servers may have written.
func (r *seenRows) startStream() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetAll()
	r.usable = true
}

func (r *seenRows) forgetAll() {
	for state := range r.views {
		r.views[state] = r.cache.views.Add(1)
	}
}

// name is a row's name in the cache.
func (r *seenRows) name(e *Entry) string {
	name := make([]byte, 0, 10+len(e.Key))
	name = binary.BigEndian.AppendUint64(name, r.views[e.State])
	name = binary.BigEndian.AppendUint16(name, e.Group)
	return string(append(name, e.Key...))
}

func (r *seenRows) slot(name string) uint32 {
	return uint32(maphash.String(r.seed, name) % changeSlots)
}

// rowRead is a read of rows that is under way.
type rowRead struct {
	rows *seenRows
	open []openRow
}

// openRow is a row of which nothing is cached.
type openRow struct {
	index int // in the request
	name  string
	slot  uint32
	begun uint32
	keep  bool // what is found may be kept, as far as is known
}

// read fills in what is cached; the rest is open.
func (r *seenRows) read(keys []Entry, values [][]byte) rowRead {
	if r == nil {
		open := make([]openRow, len(keys))
		for i := range open {
			open[i].index = i
		}
		return rowRead{nil, open}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	read := rowRead{rows: r}
	for i := range keys {
		row := openRow{index: i}
		if r.usable && int(keys[i].State) < len(r.views) {
			row.name = r.name(&keys[i])
			value, known := r.cache.get(row.name)
			if known {
				values[i] = value
				continue
			}
			row.slot = r.slot(row.name)
			row.begun, row.keep = r.begun[row.slot], r.writing[row.slot] == 0
		}
		read.open = append(read.open, row)
	}
	return read
}

// keep caches what was found of the open rows.
func (read rowRead) keep(values [][]byte) {
	r := read.rows
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range read.open {
		if row.keep && r.begun[row.slot] == row.begun {
			r.cache.put(row.name, values[row.index])
		}
	}
}

// rowChange is a write that is under way.
type rowChange struct {
	rows    *seenRows
	entries []Entry
	names   []string
	slots   []uint32
	cleared map[uint16]bool // states of which the write removes rows by prefix
}

// change forgets what the entries are going to change. Their states exist.
func (r *seenRows) change(entries []Entry) rowChange {
	if r == nil {
		return rowChange{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := rowChange{rows: r, entries: entries, names: make([]string, len(entries)), slots: make([]uint32, len(entries))}
	for i := range entries {
		if entries[i].Op == OpDeletePrefix {
			c.clear(entries[i].State)
		}
	}
	for i := range entries {
		c.names[i] = r.name(&entries[i])
		c.slots[i] = r.slot(c.names[i])
		r.writing[c.slots[i]]++
		r.begun[c.slots[i]]++
		r.cache.remove(c.names[i])
	}
	return c
}

func (c *rowChange) clear(state uint16) {
	if c.cleared == nil {
		c.cleared = map[uint16]bool{}
	}
	c.cleared[state] = true
	c.rows.views[state] = c.rows.cache.views.Add(1)
}

// applied ends a write whose changes are visible, and caches them unless it was repeated: then later writes may have
// changed the same rows.
func (c rowChange) applied(repeated bool) {
	if c.rows == nil {
		return
	}
	c.rows.mu.Lock()
	defer c.rows.mu.Unlock()
	c.forgetCleared()
	for i := range c.entries {
		if !repeated {
			c.keep(i)
		}
	}
	c.end()
}

// forgetCleared forgets what reads found of cleared states while the write was under way.
func (c rowChange) forgetCleared() {
	for state := range c.cleared {
		c.rows.views[state] = c.rows.cache.views.Add(1)
	}
}

// keep caches one entry's row. The names of cleared states are forgotten already.
func (c rowChange) keep(i int) {
	e := &c.entries[i]
	switch {
	case !c.rows.usable || c.cleared[e.State] || e.Op == OpAppend:
		c.rows.cache.remove(c.names[i])
	case e.Op == OpPut && e.Value == nil:
		c.rows.cache.put(c.names[i], []byte{})
	case e.Op == OpPut:
		c.rows.cache.put(c.names[i], e.Value)
	case e.Op == OpDelete:
		c.rows.cache.put(c.names[i], nil)
	}
}

// failed ends a write of which it may not be known whether it happens. That is no matter of a newer stream, which has
// waited for it.
func (c rowChange) failed(newest bool) {
	if c.rows == nil {
		return
	}
	c.rows.mu.Lock()
	defer c.rows.mu.Unlock()
	if newest {
		c.rows.usable = false
		c.rows.forgetAll()
	}
	c.forgetCleared()
	c.end()
}

func (c rowChange) end() {
	for _, slot := range c.slots {
		c.rows.writing[slot]--
	}
}
