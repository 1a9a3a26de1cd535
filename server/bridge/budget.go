package bridge

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/flinkndb/flinkndb/server/lineage"
)

const (
	// freeBytes is what a frame may cost without asking for room: small reads and writes go on while
	// large writes of other sessions wait for the store.
	freeBytes = 256 << 10
	// bytesFactor is how often the bytes of a frame are in memory while it is worked on: as it came, as
	// rows, and in the store's transaction.
	bytesFactor = 3
	// entryBytes is what an entry takes beside its key and value.
	entryBytes = 512
)

// budget bounds the memory of the frames that are worked on for all streams together. Who wants more than
// is left waits, first come first served. For concurrent use.
type budget struct {
	limit int64
	room  *semaphore.Weighted
	used  prometheus.Gauge
}

func newBudget(limit int64, used prometheus.Gauge) *budget {
	return &budget{limit: limit, room: semaphore.NewWeighted(limit), used: used}
}

// take waits for room and returns how to give it back. A frame that is too large for the whole budget is
// worked on alone.
func (b *budget) take(ctx context.Context, bytes int64) (giveBack func(), err error) {
	if bytes <= freeBytes {
		return func() {}, nil
	}
	bytes = min(bytes, b.limit)
	if err := b.room.Acquire(ctx, bytes); err != nil {
		return nil, err
	}
	b.used.Add(float64(bytes))
	return func() {
		b.used.Sub(float64(bytes))
		b.room.Release(bytes)
	}, nil
}

// costOf is the memory that working on entries takes.
func costOf(entries []lineage.Entry) int64 {
	cost := int64(len(entries)) * entryBytes
	for i := range entries {
		cost += bytesFactor * int64(len(entries[i].Key)+len(entries[i].Value))
	}
	return cost
}

// costOfFrame is the same for a frame that has not come yet; it has at most so many entries.
func costOfFrame(bytes, maxEntries int) int64 {
	const smallEntry = 64 // smaller ones are few as a rule, and bounded by maxEntries
	return int64(bytes)*(bytesFactor+1) + int64(min(bytes/smallEntry, maxEntries))*entryBytes
}
