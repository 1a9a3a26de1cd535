package ndb

import (
	"bytes"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/flinkndb/flinkndb/server/store"
)

const (
	defaultPageRows  = 1024
	defaultPageBytes = 4 << 20
)

// scanner collects one page of a range.
type scanner struct {
	session *session
	r       store.Range
	page    store.Page
	bytes   int
	full    bool
}

// scan reads one page. It fails with errTorn if a long value changes meanwhile.
func (c *session) scan(r store.Range) (store.Page, error) {
	if r.MaxRows <= 0 {
		r.MaxRows = defaultPageRows
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = defaultPageBytes
	}
	sc := &scanner{session: c, r: r}
	low, group := sc.start()
	for {
		if group != nil {
			// Long keys with these first bytes: their order is not the table's.
			if err := sc.hashGroup(group); err != nil || sc.full {
				return sc.page, err
			}
			past := successor(group)
			if past == "" {
				sc.page.Done = true
				return sc.page, nil
			}
			low = bound{key: past, inclusive: true}
		}
		next, done, err := sc.run(low)
		if err != nil || sc.full {
			return sc.page, err
		}
		if done {
			sc.page.Done = true
			return sc.page, nil
		}
		if next.group != nil {
			group = next.group
			continue
		}
		group, low = nil, bound{key: next.last}
	}
}

// bound is a lower bound of column k.
type bound struct {
	key       string
	inclusive bool
}

// start returns where the range begins: a bound, or a hash group that comes first.
func (sc *scanner) start() (bound, []byte) {
	first, inclusive := sc.r.Prefix, true
	if sc.r.After != nil && bytes.Compare(sc.r.After, sc.r.Prefix) >= 0 {
		first, inclusive = sc.r.After, false
	}
	if len(first) > inlineKey {
		return bound{}, first[:inlineKey]
	}
	return bound{string(first), inclusive}, nil
}

// successor returns the smallest string above all that start with prefix; "" if there is none.
func successor(prefix []byte) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			next := bytes.Clone(prefix[:i+1])
			next[i]++
			return string(next)
		}
	}
	return ""
}

// wanted says whether a key belongs to the range.
func (sc *scanner) wanted(key []byte) bool {
	return bytes.HasPrefix(key, sc.r.Prefix) && (sc.r.After == nil || bytes.Compare(key, sc.r.After) > 0)
}

// add puts a row on the page, or marks the page as full.
func (sc *scanner) add(key, value []byte, valueBytes int) bool {
	size := len(key) + valueBytes
	if len(sc.page.Rows) > 0 && (len(sc.page.Rows) >= sc.r.MaxRows || sc.bytes+size > sc.r.MaxBytes) {
		sc.full = true
		return false
	}
	sc.bytes += size
	sc.page.Rows = append(sc.page.Rows, store.Row{
		RowKey: store.RowKey{Space: sc.r.Space, Group: sc.r.Group, State: sc.r.State, Key: key},
		Value:  value,
	})
	return true
}

// continuation says where a scan goes on after a run.
type continuation struct {
	last  string // the last stored key seen
	group []byte // the hash group that comes next
}

// run reads rows in the order of column k from low on, until the page is full, a hash group begins,
// or the statement's limit is reached.
func (sc *scanner) run(low bound) (next continuation, done bool, err error) {
	limit := sc.limit()
	var st statement
	st.WriteString("SELECT k,more")
	if !sc.r.KeysOnly {
		st.WriteString(",v")
	}
	sc.from(&st, low, successor(sc.upperPrefix()))
	st.number(uint64(limit))
	count := 0
	last := scanned{after: low}
	var long []longRow
	err = sc.session.query(st.String(), func(columns []driver.Value) error {
		count++
		if sc.full || next.group != nil {
			return nil // reads the rest of the answer away
		}
		k, err := sc.ascending(columns[0], &last)
		if err != nil {
			return err
		}
		if isHashed(k) {
			next.group = clone(k[:inlineKey])
			return nil
		}
		next.last = string(k)
		return sc.take(k, columns[1:], &long)
	})
	if err != nil {
		return next, false, err
	}
	sc.session.metrics.statement("scan", count)
	return next, count < limit && next.group == nil, sc.fill(long)
}

// scanned is how far a scan has come: the rows of an answer must ascend from there, or it would never end.
type scanned struct{ after bound }

// ascending reads the column k of the next row.
func (sc *scanner) ascending(column driver.Value, last *scanned) ([]byte, error) {
	k, err := asBytes(column)
	if err != nil {
		return nil, fmt.Errorf("a row of space %d, group %d, state %d: column k: %w", sc.r.Space, sc.r.Group, sc.r.State, err)
	}
	if key := string(k); key < last.after.key || key == last.after.key && !last.after.inclusive {
		return nil, fmt.Errorf("%s: the server returned it out of order", sc.nameOf(k))
	}
	last.after = bound{key: string(k)}
	return k, nil
}

// nameOf names a row of the range by its column k.
func (sc *scanner) nameOf(k []byte) sqlKey {
	return sqlKey{sc.r.Space, sc.r.Group, sc.r.State, string(k)}
}

// limit is how many rows to ask for: one more than the page takes, to know whether it is the last.
func (sc *scanner) limit() int {
	const leastRow = 32 // bytes of key and value of the smallest rows that matter
	rows := min(sc.r.MaxRows-len(sc.page.Rows), (sc.r.MaxBytes-sc.bytes)/leastRow+1)
	return min(max(rows, 1)+1, maxStatementRows)
}

// upperPrefix is the prefix of the stored keys of the range.
func (sc *scanner) upperPrefix() []byte {
	return sc.r.Prefix[:min(len(sc.r.Prefix), inlineKey)]
}

// from writes the statement from FROM to LIMIT. high "" = no upper bound.
func (sc *scanner) from(st *statement, low bound, high string) {
	st.WriteString(" FROM state_row WHERE space=")
	st.number(sc.r.Space)
	st.WriteString(" AND key_group=")
	st.number(uint64(sc.r.Group))
	st.WriteString(" AND state=")
	st.number(uint64(sc.r.State))
	if low.key != "" || !low.inclusive {
		st.WriteString(" AND k>")
		if low.inclusive {
			st.WriteByte('=')
		}
		st.bytes([]byte(low.key))
	}
	if high != "" {
		st.WriteString(" AND k<")
		st.bytes([]byte(high))
	}
	st.WriteString(" ORDER BY k LIMIT ")
}

// take adds a row whose key is not hashed; its chunks are noted in long.
func (sc *scanner) take(k []byte, rest []driver.Value, long *[]longRow) error {
	if sc.r.KeysOnly {
		sc.add(clone(k), nil, 0)
		return nil
	}
	a, v, err := readValue(rest)
	if err == nil && a != nil {
		err = a.fits(sc.nameOf(k))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", sc.nameOf(k), err)
	}
	if a == nil {
		sc.add(clone(k), clone(v), len(v))
		return nil
	}
	if sc.add(clone(k), nil, a.valueBytes()) {
		*long = append(*long, longRow{index: len(sc.page.Rows) - 1, appendix: *a, head: clone(v)})
	}
	return nil
}

// fill completes the values of rows that have chunks.
func (sc *scanner) fill(long []longRow) error {
	if len(long) == 0 {
		return nil
	}
	payloads, err := sc.session.payloads(long, func(longRow) sqlKey {
		return sqlKey{space: sc.r.Space, group: sc.r.Group}
	})
	if err != nil {
		return err
	}
	for n, row := range long {
		sc.page.Rows[row.index].Value = payloads[n][row.appendix.keyBytes:]
	}
	return nil
}

// longKey is a row of a hash group: its whole key, and its row for fetching the value.
type longKey struct {
	key []byte
	row longRow
}

// hashGroup adds the wanted rows of a hash group in the order of their whole keys. It reads all
// keys of the group and keeps the smallest that fit on the page.
func (sc *scanner) hashGroup(group []byte) error {
	room := sc.r.MaxRows - len(sc.page.Rows) + 1
	var keep []longKey
	// Whatever is above the group's bytes and below their successor is a hashed key of this group.
	low, high := string(group), successor(group)
	for {
		some, last, err := sc.hashGroupPart(low, high)
		if err != nil {
			return err
		}
		keep = append(keep, some...)
		slices.SortFunc(keep, func(a, b longKey) int { return bytes.Compare(a.key, b.key) })
		keep = keep[:min(len(keep), room)]
		if last == "" {
			break
		}
		low = last
	}
	var long []longRow
	for _, lk := range keep {
		size := lk.row.appendix.valueBytes()
		if sc.r.KeysOnly {
			size = 0
		}
		if !sc.add(lk.key, nil, size) {
			break
		}
		lk.row.index = len(sc.page.Rows) - 1
		long = append(long, lk.row)
	}
	if sc.r.KeysOnly {
		return nil
	}
	return sc.fill(long)
}

// hashGroupPart reads some wanted rows of a hash group after the stored key low; last is where to
// go on, "" at the end.
func (sc *scanner) hashGroupPart(low, high string) (some []longKey, last string, err error) {
	var st statement
	st.WriteString("SELECT k,more,v")
	sc.from(&st, bound{key: low}, high)
	st.number(maxStatementRows)
	count := 0
	before := scanned{after: bound{key: low}}
	var long []longRow
	err = sc.session.query(st.String(), func(columns []driver.Value) error {
		count++
		k, err := sc.ascending(columns[0], &before)
		if err != nil {
			return err
		}
		last = string(k)
		a, v, err := readValue(columns[1:])
		if err == nil && a == nil {
			err = errors.New("it has a hashed key and no column more")
		}
		if err == nil {
			err = a.fits(sc.nameOf(k))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", sc.nameOf(k), err)
		}
		long = append(long, longRow{appendix: *a, head: clone(v)})
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	sc.session.metrics.statement("scan", count)
	if count < maxStatementRows {
		last = ""
	}
	some, err = sc.wholeKeys(long)
	return some, last, err
}

// wholeKeys returns the rows of the range among rows with long keys, with their whole keys.
func (sc *scanner) wholeKeys(long []longRow) ([]longKey, error) {
	var some []longKey
	var beyond, keysOf []longRow // rows whose key itself goes on in chunks; the same without values
	for _, row := range long {
		n := int(row.appendix.keyBytes)
		if n > len(row.head) {
			beyond = append(beyond, row)
			row.appendix.total = uint64(n)
			keysOf = append(keysOf, row)
		} else if sc.wanted(row.head[:n]) {
			some = append(some, longKey{clone(row.head[:n]), row})
		}
	}
	if len(beyond) == 0 {
		return some, nil
	}
	payloads, err := sc.session.payloads(keysOf, func(longRow) sqlKey {
		return sqlKey{space: sc.r.Space, group: sc.r.Group}
	})
	if err != nil {
		return nil, err
	}
	for i, row := range beyond {
		if sc.wanted(payloads[i]) {
			some = append(some, longKey{payloads[i], row})
		}
	}
	return some, nil
}
