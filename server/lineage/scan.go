package lineage

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"

	"github.com/flinkndb/flinkndb/server/store"
)

const (
	pageRows  = 1024
	pageBytes = 4 << 20
	// mergePageRows is the page of each key group when all are merged by key: together they should
	// not read much more than was asked for.
	mergePageRows  = 16
	mergePageBytes = 64 << 10
)

// rowReader is what a scan reads from: the store, or a transaction.
type rowReader interface {
	scan(r store.Range) (store.Page, error)
}

type storeReader struct {
	ctx   context.Context
	store store.Store
}

func (r storeReader) scan(q store.Range) (store.Page, error) { return r.store.Scan(r.ctx, q) }

type txReader struct{ tx store.Tx }

func (r txReader) scan(q store.Range) (store.Page, error) { return r.tx.Scan(q) }

// visibleRow is a row as its reader sees it.
type visibleRow struct {
	Group uint16
	Key   []byte
	Value []byte
}

// layerCursor walks the stored rows of one layer.
type layerCursor struct {
	reader  rowReader
	query   store.Range
	history History
	page    []store.Row
	done    bool
}

// head returns the next stored row without taking it; nil at the end.
func (c *layerCursor) head() (*store.Row, error) {
	for len(c.page) == 0 {
		if c.done {
			return nil, nil
		}
		page, err := c.reader.scan(c.query)
		if err != nil {
			return nil, fmt.Errorf("scan group %d: %w", c.query.Group, err)
		}
		c.page, c.done = page.Rows, page.Done
		if n := len(page.Rows); n > 0 {
			c.query.After = page.Rows[n-1].Key
		}
		if c.query.MaxRows < pageRows {
			c.query.MaxRows *= 2
		}
	}
	return &c.page[0], nil
}

func (c *layerCursor) take() { c.page = c.page[1:] }

// groupScan walks the visible rows of one state in one key group, in key order, over all layers.
type groupScan struct {
	group    uint16
	layers   []*layerCursor
	keysOnly bool
	buf      []version
}

// newGroupScan starts a walk for a session; after (exclusive) may be nil. The first page has at most so many rows.
func newGroupScan(a *attached, reader rowReader, stateIndex uint16, group uint16, prefix, after []byte, firstPage int) (*groupScan, error) {
	p, err := a.partOf(group)
	if err != nil {
		return nil, err
	}
	state, err := a.state(stateIndex)
	if err != nil {
		return nil, err
	}
	return layeredScan(reader, a.parts[p].Layers, state.numbers[p], group, prefix, after, firstPage), nil
}

func layeredScan(reader rowReader, layers []layer, numbers []stateNumber, group uint16, prefix, after []byte, firstPage int) *groupScan {
	scan := &groupScan{group: group}
	for i, l := range layers {
		if !numbers[i].known {
			continue
		}
		scan.layers = append(scan.layers, &layerCursor{
			reader:  reader,
			history: l.History,
			query: store.Range{
				Space: l.Space, Group: group, State: numbers[i].number, Prefix: prefix, After: after,
				MaxRows: firstPage, MaxBytes: pageBytes,
			},
		})
	}
	return scan
}

// next returns the next visible row; false at the end.
func (s *groupScan) next() (visibleRow, bool, error) {
	for {
		key, ok, err := s.lowest()
		if err != nil || !ok {
			return visibleRow{}, false, err
		}
		var r resolution
		for _, c := range s.layers {
			if len(c.page) == 0 || !bytes.Equal(c.page[0].Key, key) {
				continue
			}
			if !r.decided {
				versions, err := decodeRow(c.page[0].Value, s.buf[:0])
				if err != nil {
					return visibleRow{}, false, fmt.Errorf("%s: %w", c.page[0].Name(), err)
				}
				s.buf = versions
				r.add(versions, c.history)
			}
			c.take()
		}
		if !r.found {
			continue
		}
		row := visibleRow{Group: s.group, Key: key}
		if !s.keysOnly {
			row.Value = r.value()
		}
		return row, true, nil
	}
}

// lowest returns the smallest key that any layer is at.
func (s *groupScan) lowest() ([]byte, bool, error) {
	var lowest []byte
	found := false
	for _, c := range s.layers {
		row, err := c.head()
		if err != nil {
			return nil, false, err
		}
		if row != nil && (!found || bytes.Compare(row.Key, lowest) < 0) {
			lowest, found = row.Key, true
		}
	}
	return lowest, found, nil
}

// Scan returns one page of a state's rows; done says that none follow.
func (s *Session) Scan(ctx context.Context, r ScanRequest) (rows []Entry, done bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r.Range.First > r.Range.Last || !r.Range.within(s.record.Range) {
		return nil, false, fmt.Errorf("%w: scan range is %d to %d, must lie within %d to %d",
			ErrInvalid, r.Range.First, r.Range.Last, s.record.Range.First, s.record.Range.Last)
	}
	if r.LimitRows <= 0 || r.LimitRows > 1<<16 {
		r.LimitRows = pageRows
	}
	if r.LimitBytes <= 0 {
		r.LimitBytes = pageBytes
	}
	page := &scanPage{request: r}
	reader := storeReader{ctx, s.l.store}
	if r.Order == OrderKeyGroup {
		done, err = s.scanByKey(reader, page)
	} else {
		done, err = s.scanByGroup(reader, page)
	}
	if err != nil {
		return nil, false, err
	}
	limit := s.l.Limits().MaxValueBytes
	for i := range page.rows {
		if size := len(page.rows[i].Value); size > limit {
			return nil, false, tooLargeToRead(size, s.states[r.State].name, limit)
		}
	}
	return page.rows, done, s.checkNotFenced()
}

// scanPage collects rows until a limit is reached.
type scanPage struct {
	request ScanRequest
	rows    []Entry
	bytes   int
}

func (p *scanPage) add(row visibleRow) {
	p.rows = append(p.rows, Entry{State: p.request.State, Group: row.Group, Op: OpPut, Key: row.Key, Value: row.Value})
	p.bytes += len(row.Key) + len(row.Value)
}

func (p *scanPage) full() bool {
	return len(p.rows) >= p.request.LimitRows || p.bytes >= p.request.LimitBytes
}

func (s *Session) scanByGroup(reader rowReader, page *scanPage) (bool, error) {
	r := page.request
	first := int(r.Range.First)
	if r.Resume && int(r.AfterGroup) > first {
		first = int(r.AfterGroup)
	}
	for group := first; group <= int(r.Range.Last); group++ {
		var after []byte
		if r.Resume && group == int(r.AfterGroup) {
			after = orEmpty(r.AfterKey)
		}
		scan, err := newGroupScan(s.attached, reader, r.State, uint16(group), r.Prefix, after, pageRows)
		if err != nil {
			return false, err
		}
		scan.keysOnly = r.KeysOnly
		for {
			if page.full() {
				return false, nil
			}
			row, ok, err := scan.next()
			if err != nil {
				return false, err
			}
			if !ok {
				break
			}
			page.add(row)
		}
	}
	return true, nil
}

// scanByKey merges the key groups by key.
func (s *Session) scanByKey(reader rowReader, page *scanPage) (bool, error) {
	r := page.request
	var merge groupHeap
	for group := int(r.Range.First); group <= int(r.Range.Last); group++ {
		scan, err := s.resumedGroup(reader, r, uint16(group))
		if err != nil {
			return false, err
		}
		row, ok, err := scan.next()
		if err != nil {
			return false, err
		}
		if ok {
			merge = append(merge, groupHead{scan, row})
		}
	}
	heap.Init(&merge)
	for len(merge) > 0 {
		if page.full() {
			return false, nil
		}
		head := &merge[0]
		page.add(head.row)
		row, ok, err := head.scan.next()
		if err != nil {
			return false, err
		}
		if ok {
			head.row = row
			heap.Fix(&merge, 0)
		} else {
			heap.Pop(&merge)
		}
	}
	return true, nil
}

// resumedGroup starts one group of a merge after (key, group): groups up to the one resumed after
// have given the key itself already, later ones have not.
func (s *Session) resumedGroup(reader rowReader, r ScanRequest, group uint16) (*groupScan, error) {
	p, err := s.partOf(group)
	if err != nil {
		return nil, err
	}
	state, err := s.state(r.State)
	if err != nil {
		return nil, err
	}
	var after []byte
	if r.Resume {
		after = orEmpty(r.AfterKey)
	}
	scan := layeredScan(reader, s.parts[p].Layers, state.numbers[p], group, r.Prefix, after, mergePageRows)
	for _, c := range scan.layers {
		c.query.MaxBytes = mergePageBytes
	}
	scan.keysOnly = r.KeysOnly
	if !r.Resume || group <= r.AfterGroup {
		return scan, nil
	}
	return s.withKeyItself(scan, r)
}

// withKeyItself makes a walk that starts after a key start at it. The store's ranges exclude their
// start, so the row is looked for from the largest smaller bound: its own prefix of one byte less.
func (s *Session) withKeyItself(scan *groupScan, r ScanRequest) (*groupScan, error) {
	for _, c := range scan.layers {
		exact := c.query
		exact.Prefix, exact.After, exact.MaxRows = orEmpty(r.AfterKey), nil, 1
		page, err := c.reader.scan(exact)
		if err != nil {
			return nil, fmt.Errorf("scan group %d: %w", scan.group, err)
		}
		if len(page.Rows) > 0 && bytes.Equal(page.Rows[0].Key, r.AfterKey) {
			c.page = page.Rows[:1]
		}
	}
	return scan, nil
}

func orEmpty(key []byte) []byte {
	if key == nil {
		return []byte{}
	}
	return key
}

// groupHead is a walk with the row that it is at.
type groupHead struct {
	scan *groupScan
	row  visibleRow
}

// groupHeap orders walks by key, then group.
type groupHeap []groupHead

func (h groupHeap) Len() int { return len(h) }

func (h groupHeap) Less(i, j int) bool {
	order := bytes.Compare(h[i].row.Key, h[j].row.Key)
	return order < 0 || order == 0 && h[i].row.Group < h[j].row.Group
}

func (h groupHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *groupHeap) Push(x any) { *h = append(*h, x.(groupHead)) }

func (h *groupHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// Count counts the visible rows of a state.
func (s *Session) Count(ctx context.Context, state uint16, groups Range) (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if groups.First > groups.Last || !groups.within(s.record.Range) {
		return 0, fmt.Errorf("%w: count range is %d to %d, must lie within %d to %d",
			ErrInvalid, groups.First, groups.Last, s.record.Range.First, s.record.Range.Last)
	}
	var n uint64
	for group := int(groups.First); group <= int(groups.Last); group++ {
		scan, err := newGroupScan(s.attached, storeReader{ctx, s.l.store}, state, uint16(group), nil, nil, pageRows)
		if err != nil {
			return 0, err
		}
		scan.keysOnly = true
		for {
			_, ok, err := scan.next()
			if err != nil {
				return 0, err
			}
			if !ok {
				break
			}
			n++
		}
	}
	return n, s.checkNotFenced()
}
