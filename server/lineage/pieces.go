package lineage

import "github.com/flinkndb/flinkndb/server/store"

// sweepBatch is how many rows the sweeper changes at most while it holds a session up, and pieceBytes how large the
// rows are together that it, or a count, has in memory. A single row may be larger.
const (
	sweepBatch = 512
	pieceBytes = 4 << 20
)

// Limits of what is expected of a row: before any of its state was read, and at least, so that a piece has sweepBatch
// rows at most.
const (
	firstRowBytes = pieceBytes / 8
	leastRowBytes = pieceBytes / sweepBatch
)

// pieces cuts a walk over rows so that those of a piece, if they are like those before of their states, fill pieceBytes.
type pieces struct {
	expected map[uint16]int // bytes of a row of each state
}

func newPieces() *pieces { return &pieces{expected: map[uint16]int{}} }

// each hands rows over piece by piece. fn returns the sizes of the rows that it read.
func (p *pieces) each(rows []store.RowKey, fn func([]store.RowKey) ([]int, error)) error {
	for len(rows) > 0 {
		n := p.next(rows)
		sizes, err := fn(rows[:n])
		if err != nil {
			return err
		}
		p.took(rows[:n], sizes)
		rows = rows[n:]
	}
	return nil
}

// next is how many of some rows the next piece has.
func (p *pieces) next(rows []store.RowKey) int {
	bytes := 0
	for n := range rows {
		if bytes += p.rowBytes(rows[n].State); bytes > pieceBytes && n > 0 {
			return n
		}
	}
	return len(rows)
}

// rowBytes is what is expected of a row of a state.
func (p *pieces) rowBytes(state uint16) int {
	if expected, known := p.expected[state]; known {
		return expected
	}
	return firstRowBytes
}

// took notes the sizes of a piece's rows. A large row makes the next piece small at once; after it pieces grow again
// step by step, so that single large rows do not make a sweep slow.
func (p *pieces) took(rows []store.RowKey, sizes []int) {
	largest := map[uint16]int{}
	for i, row := range rows {
		largest[row.State] = max(largest[row.State], sizes[i])
	}
	for state, size := range largest {
		p.expected[state] = max(size, p.rowBytes(state)/4, leastRowBytes)
	}
}

// rowSizes are the sizes of rows as they were read; 0 where there is none.
func rowSizes(raws [][]byte) []int {
	sizes := make([]int, len(raws))
	for i, raw := range raws {
		sizes[i] = len(raw)
	}
	return sizes
}
