package bridge

// firstKeys and mostKeys are how many keys the first piece of a read has, and any at most.
const (
	firstKeys = 8
	mostKeys  = 1024
)

// pieces cuts a read of many keys so that the rows of a piece, if they are like those before, fill one frame.
type pieces struct {
	left    int // keys not asked for yet
	asked   int
	size    int // keys of the piece before
	largest int // value so far
	bytes   int // of rows that are not sent yet
}

func newPieces(keys int) *pieces { return &pieces{left: keys, size: firstKeys} }

// next is how many keys to ask for.
func (p *pieces) next() int {
	if p.asked > 0 {
		p.size = min(4*p.size, mostKeys, max(1, softFrameBytes/max(1, p.largest)))
	}
	n := min(p.size, p.left)
	p.left -= n
	p.asked += n
	return n
}

// took notes a row of the answer.
func (p *pieces) took(valueBytes int) {
	p.largest = max(p.largest, valueBytes)
	p.bytes += valueBytes + 16
}
