package lineage

import (
	"sync/atomic"

	"github.com/bits-and-blooms/bloom/v3"
)

const (
	firstFilterRows = 1 << 14
	filterGrowth    = 4
	// One row in a hundred is looked for although it is not there; each filter takes 9.6 bits a row for that.
	filterErrors = 0.01
	filterBits   = 9.6
)

// newRows knows the rows that a session has written into a row space of its own, so that a write need not look for
// a row that cannot be there: jobs make new keys all the time. It says of some unwritten rows that they may exist,
// never the opposite.
//
// It counts for a session that started its row space, and only while all writes come through this server: nobody else
// writes rows of the session's key groups, but a stream at another server would do so without our knowledge. Not for
// concurrent use.
type newRows struct {
	attachment uint64 // of the stream that wrote last
	budget     *filterBudget
	filters    []*bloom.BloomFilter // the newest, and largest, last
	room       int                  // rows that the newest still takes
	bytes      int64
}

// filterBudget bounds the memory of all newRows of a server.
type filterBudget struct {
	limit int64
	used  atomic.Int64
}

// take reserves bytes, if there are so many left.
func (b *filterBudget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	return false
}

func newNewRows(budget *filterBudget, attachment uint64) *newRows {
	return &newRows{attachment: attachment, budget: budget}
}

// mayExist says whether a row may have been written before, and notes that it is written now. The second result
// is false when there is no memory left: from then on nothing is known any more.
func (n *newRows) mayExist(row []byte) (exists, ok bool) {
	for _, filter := range n.filters {
		if filter.Test(row) {
			return true, true
		}
	}
	if n.room == 0 && !n.grow() {
		n.free()
		return true, false
	}
	n.filters[len(n.filters)-1].Add(row)
	n.room--
	return false, true
}

func (n *newRows) grow() bool {
	rows := firstFilterRows
	for range n.filters {
		rows *= filterGrowth
	}
	bytes := int64(float64(rows) * filterBits / 8)
	if !n.budget.take(bytes) {
		return false
	}
	n.bytes += bytes
	n.filters = append(n.filters, bloom.NewWithEstimates(uint(rows), filterErrors))
	n.room = rows
	return true
}

// free gives the memory back.
func (n *newRows) free() {
	n.budget.used.Add(-n.bytes)
	n.bytes, n.filters, n.room = 0, nil, 0
}
