package lineage

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// cachedRowBytes is what a cached row takes beside its name and value: list element, map entry, headers.
	cachedRowBytes = 200
	// One row takes at most this part of the cache.
	maxCachedShare = 16
)

// rowCache keeps what sessions see of rows, values and that there is none, for stores that are slow to ask. It is
// bounded by bytes, of all sessions together; rows that were not used for the longest time go first. For any goroutine.
type rowCache struct {
	limit        int64
	hits, misses atomic.Uint64
	views        atomic.Uint64 // the last one given away

	mu    sync.Mutex
	rows  *simplelru.LRU[string, []byte]
	bytes int64
}

func newRowCache(limit int64) *rowCache {
	c := &rowCache{limit: limit}
	rows, err := simplelru.NewLRU(math.MaxInt, func(name string, value []byte) { c.bytes -= cachedSize(name, value) })
	if err != nil {
		panic(err) // only a size below 1 is refused
	}
	c.rows = rows
	return c
}

func cachedSize(name string, value []byte) int64 {
	return int64(len(name) + len(value) + cachedRowBytes)
}

// get returns a cached value, nil for a row that has none, and whether anything is known of the row.
func (c *rowCache) get(name string) (value []byte, known bool) {
	c.mu.Lock()
	value, known = c.rows.Get(name)
	c.mu.Unlock()
	if known {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
	return value, known
}

// put keeps a copy of a value, or, for nil, that there is none.
func (c *rowCache) put(name string, value []byte) {
	size := cachedSize(name, value)
	if value != nil {
		value = append(make([]byte, 0, len(value)), value...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows.Remove(name)
	if size > c.limit/maxCachedShare {
		return
	}
	c.rows.Add(name, value)
	c.bytes += size
	for c.bytes > c.limit {
		c.rows.RemoveOldest()
	}
}

func (c *rowCache) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows.Remove(name)
}

// size is what is cached: how many rows, and bytes.
func (c *rowCache) size() (rows int, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows.Len(), c.bytes
}
