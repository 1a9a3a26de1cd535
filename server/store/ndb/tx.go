package ndb

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/flinkndb/flinkndb/server/store"
)

// tx implements store.Tx.
type tx struct {
	store *Store
	host  *host
	c     *session
	// err is the first failure of a statement: whatever fn does, the transaction is then rolled back.
	err   error
	done  bool
	wrote bool
	// operations counts the row operations that NDB must keep until the end.
	operations int
	rows, meta memory
	// unmarked holds what was found to have no long values (long_state).
	unmarked map[spaceState]bool
	// placeholders are the locked names that have no record.
	placeholders map[string]bool
}

func newTx(s *Store, c *session, h *host) *tx {
	return &tx{store: s, host: h, c: c, unmarked: map[spaceState]bool{}, placeholders: map[string]bool{},
		rows: memory{long: map[sqlKey]appendix{}}, meta: memory{long: map[sqlKey]appendix{}}}
}

// memory is what the transaction knows of rows from having read or written them: whether they have
// chunks, which a later write must remove.
type memory struct {
	read [][]sqlKey
	long map[sqlKey]appendix
	// known is the set of read, made when it is first needed and again when read has grown.
	known   map[sqlKey]struct{}
	inKnown int // how many of read are in known
}

// knows says whether the transaction has read the row.
func (m *memory) knows(key sqlKey) bool {
	if m.known == nil {
		m.known = map[sqlKey]struct{}{}
	}
	for ; m.inKnown < len(m.read); m.inKnown++ {
		for _, k := range m.read[m.inKnown] {
			m.known[k] = struct{}{}
		}
	}
	_, ok := m.known[key]
	return ok
}

var errTxDone = errors.New("transaction used after its function returned")

// ready returns the error that every further call meets.
func (t *tx) ready() error {
	if t.done {
		return errTxDone
	}
	return t.err
}

// fail notes a statement's failure and returns it.
func (t *tx) fail(err error) error {
	if t.err == nil {
		t.err = err
	}
	return err
}

// Get implements store.Tx.
func (t *tx) Get(keys []store.RowKey) ([][]byte, error) {
	if err := t.ready(); err != nil {
		return nil, err
	}
	l, err := newLookup(keys)
	if err != nil {
		return nil, err
	}
	l.onLong = func(i int, a appendix) { t.rows.long[l.keys[i]] = a }
	if err := t.c.get(l); err != nil {
		return nil, t.fail(err)
	}
	t.rows.read = append(t.rows.read, l.keys)
	return l.values, nil
}

// Scan implements store.Tx.
func (t *tx) Scan(r store.Range) (store.Page, error) {
	if err := t.ready(); err != nil {
		return store.Page{}, err
	}
	page, err := t.c.scan(r)
	if err != nil {
		return store.Page{}, t.fail(err)
	}
	return page, nil
}

// Put implements store.Tx.
func (t *tx) Put(rows []store.Row) error {
	if err := t.ready(); err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	changes := make([]change, len(rows))
	var long []sqlKey
	for i := range rows {
		ch, err := newChange(&rows[i])
		if err != nil {
			return err
		}
		changes[i] = ch
		if _, isLong := ch.payloadSize(); isLong {
			long = append(long, ch.key)
		}
	}
	if err := t.countWrites(changes); err != nil {
		return err
	}
	t.wrote = true
	if err := t.markLong(long); err != nil {
		return t.fail(err)
	}
	return t.fail(t.write(&rowTable, &t.rows, changes))
}

// write replaces rows, after the chunks of those that have some are gone.
func (t *tx) write(table *table, m *memory, changes []change) error {
	keys := make([]sqlKey, len(changes))
	for i := range changes {
		keys[i] = changes[i].key
	}
	if err := t.removeOld(table, m, keys); err != nil {
		return err
	}
	return t.c.replace(table, changes, func(key sqlKey, a appendix) { m.long[key] = a })
}

// Delete implements store.Tx.
func (t *tx) Delete(keys []store.RowKey) error {
	if err := t.ready(); err != nil {
		return err
	}
	if len(keys) == 0 {
		return nil
	}
	t.wrote = true
	sqlKeys := make([]sqlKey, len(keys))
	for i, k := range keys {
		if err := checkKey(k); err != nil {
			return err
		}
		sqlKeys[i] = rowKey(k)
	}
	if err := t.count(len(sqlKeys)); err != nil {
		return err
	}
	if err := t.removeOld(&rowTable, &t.rows, sqlKeys); err != nil {
		return t.fail(err)
	}
	return t.fail(t.c.remove(&rowTable, sqlKeys))
}

// countWrites counts the row operations of a write.
func (t *tx) countWrites(changes []change) error {
	operations := 0
	for i := range changes {
		bytes, _ := changes[i].payloadSize()
		operations += 1 + appendix{total: uint64(bytes)}.chunks()
	}
	return t.count(operations)
}

// count adds row operations and refuses what the cluster cannot hold.
func (t *tx) count(operations int) error {
	t.operations += operations
	if limit := t.store.maxOperations; limit > 0 && t.operations > limit {
		return fmt.Errorf("a transaction of more than %d row operations does not fit into the cluster: raise MaxNoOfConcurrentOperations of the data nodes, or write less at once", limit)
	}
	return nil
}

// removeOld removes the chunks of rows that are about to be replaced or removed.
func (t *tx) removeOld(table *table, m *memory, keys []sqlKey) error {
	unknown, err := t.unknown(table, m, keys)
	if err != nil {
		return err
	}
	if len(unknown) > 0 {
		found, err := t.c.appendices(table, unknown)
		if err != nil {
			return err
		}
		for key, a := range found {
			m.long[key] = a
		}
	}
	if len(m.long) == 0 {
		return nil
	}
	var old []chunkKey
	for _, key := range keys {
		if a, ok := m.long[key]; ok {
			old = a.chunkKeys(old, key)
			delete(m.long, key)
		}
	}
	if err := t.count(len(old)); err != nil {
		return err
	}
	return t.c.removeChunks(old)
}

// unknown returns those of the keys whose rows may have chunks that the transaction does not know of.
func (t *tx) unknown(table *table, m *memory, keys []sqlKey) ([]sqlKey, error) {
	var unknown []sqlKey
	for _, key := range keys {
		if _, ok := m.long[key]; !ok && (len(m.read) == 0 || !m.knows(key)) {
			unknown = append(unknown, key)
		}
	}
	if !table.rows || len(unknown) == 0 {
		return unknown, nil
	}
	marked, err := t.marked(unknown)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, key := range unknown {
		if marked[spaceState{key.space, key.state}] {
			unknown[n] = key
			n++
		}
	}
	return unknown[:n], nil
}

// marked says which of the states of the keys have, or had, long values.
func (t *tx) marked(keys []sqlKey) (map[spaceState]bool, error) {
	marked := map[spaceState]bool{}
	var ask []spaceState
	for _, key := range keys {
		ss := spaceState{key.space, key.state}
		if _, seen := marked[ss]; seen {
			continue
		}
		marked[ss] = t.store.longStates.has(ss)
		if !marked[ss] && !t.unmarked[ss] {
			ask = append(ask, ss)
		}
	}
	if len(ask) == 0 {
		return marked, nil
	}
	found, err := t.c.longStates(ask)
	if err != nil {
		return nil, err
	}
	for _, ss := range found {
		marked[ss] = true
		t.store.longStates.add(ss)
	}
	for _, ss := range ask {
		if !marked[ss] {
			t.unmarked[ss] = true
		}
	}
	return marked, nil
}

// longStates returns those of the pairs that table long_state holds.
func (c *session) longStates(ask []spaceState) ([]spaceState, error) {
	var st statement
	st.WriteString("SELECT space,state FROM long_state WHERE (space,state) IN (")
	st.list(len(ask), func(i int) { writeSpaceState(&st, ask[i]) })
	st.WriteByte(')')
	var found []spaceState
	err := c.query(st.String(), func(columns []driver.Value) error {
		space, err1 := asUint(columns[0])
		state, err2 := asUint(columns[1])
		found = append(found, spaceState{space, uint16(state)})
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, err
	}
	c.metrics.statement("long_state", len(ask))
	return found, nil
}

func writeSpaceState(st *statement, ss spaceState) {
	st.WriteByte('(')
	st.number(ss.space)
	st.WriteByte(',')
	st.number(uint64(ss.state))
	st.WriteByte(')')
}

// markLong notes in long_state that the states of the rows have long values. It does so on another
// connection, committed at once: the note is only a hint, and a lock on it would make transactions
// wait for each other.
func (t *tx) markLong(keys []sqlKey) error {
	var missing []spaceState
	seen := map[spaceState]bool{}
	for _, key := range keys {
		ss := spaceState{key.space, key.state}
		if !seen[ss] && !t.store.longStates.has(ss) {
			missing = append(missing, ss)
		}
		seen[ss] = true
	}
	if len(missing) == 0 {
		return nil
	}
	var st statement
	st.WriteString("INSERT IGNORE INTO long_state (space,state) VALUES ")
	st.list(len(missing), func(i int) { writeSpaceState(&st, missing[i]) })
	err := t.store.withSession(t.c.ctx, t.host.aux, func(c *session) error {
		_, err := c.exec(st.String())
		return err
	})
	if err != nil {
		return err
	}
	t.store.longStates.add(missing...)
	return nil
}
