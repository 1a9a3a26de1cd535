package lineage

import (
	"slices"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

// TestPiecesFollowTheSizesOfRows walks rows of one state, and then those of another.
func TestPiecesFollowTheSizesOfRows(t *testing.T) {
	p := newPieces()
	for _, walk := range []struct {
		name     string
		state    uint16
		rows     int
		rowBytes int
		expected []int // rows of each piece
	}{
		{"small rows", 0, 1200, 100, []int{8, 32, 128, 512, 512, 8}},
		{"small rows again", 0, 600, 100, []int{512, 88}},
		{"large rows of another state", 1, 12, pieceBytes / 2, []int{8, 2, 2}},
		{"rows above what fits", 1, 5, 2 * pieceBytes, []int{2, 1, 1, 1}},
		{"small rows after them", 1, 100, 100, []int{1, 2, 8, 32, 57}},
	} {
		var got []int
		err := p.each(rowsOf(walk.state, walk.rows), func(piece []store.RowKey) ([]int, error) {
			got = append(got, len(piece))
			return slices.Repeat([]int{walk.rowBytes}, len(piece)), nil
		})
		if err != nil || !slices.Equal(got, walk.expected) {
			t.Errorf("%s: pieces of %v rows, expected %v, error %v", walk.name, got, walk.expected, err)
		}
	}
	mixed := append(rowsOf(0, 100), rowsOf(2, 100)...)
	if n := p.next(mixed); n >= 108 || n <= 100 {
		t.Errorf("a piece with rows of a known and an unknown state has %d", n)
	}
}

func rowsOf(state uint16, n int) []store.RowKey {
	return slices.Repeat([]store.RowKey{{Space: 1, State: state}}, n)
}
