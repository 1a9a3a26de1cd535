package lineage

import "sort"

// stamp says when a version was written: in which generation and which of its epochs.
type stamp struct {
	Gen   uint64
	Epoch uint64
}

// History is a list of generations, ascending, each with the last of its epochs that counts.
type History []Span

// Span is one generation of a History.
type Span struct {
	Gen  uint64 `json:"g"`
	Last uint64 `json:"e"`
}

// sees says whether a version with this stamp counts. Histories are short; the newest generations
// are asked for most, so the search starts at the end.
func (h History) sees(s stamp) bool {
	if n := len(h); n > 8 {
		i := sort.Search(n, func(i int) bool { return h[i].Gen >= s.Gen })
		return i < n && h[i].Gen == s.Gen && s.Epoch <= h[i].Last
	}
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Gen == s.Gen {
			return s.Epoch <= h[i].Last
		}
		if h[i].Gen < s.Gen {
			return false
		}
	}
	return false
}

// with returns the history continued by a generation. The receiver stays as it is.
func (h History) with(span Span) History {
	longer := make(History, len(h), len(h)+1)
	copy(longer, h)
	return append(longer, span)
}

// until returns the history with the last epoch of its newest generation set.
func (h History) until(last uint64) History {
	cut := make(History, len(h))
	copy(cut, h)
	cut[len(cut)-1].Last = last
	return cut
}

func (h History) equal(other History) bool {
	if len(h) != len(other) {
		return false
	}
	for i := range h {
		if h[i] != other[i] {
			return false
		}
	}
	return true
}
