package ndb

import (
	"fmt"
	"math"
	"sync"

	"github.com/flinkndb/flinkndb/server/store"
)

// What the store takes. Keys and values of any size up to these work the same, but those that fit
// into a row (inlineKey, inlineValue) are read and written with one statement instead of two.
const (
	maxKeyBytes   = 1 << 20
	maxValueBytes = 256 << 20
	maxMetaKey    = 768
	maxMetaValue  = 64 << 20
)

// Limits implements store.Store.
func (s *Store) Limits() store.Limits {
	return store.Limits{MaxKeyBytes: maxKeyBytes, MaxValueBytes: maxValueBytes, MaxMetaKey: maxMetaKey, MaxMetaValue: maxMetaValue}
}

func checkKey(key store.RowKey) error {
	if key.Space == 0 {
		return fmt.Errorf("row space: 0; allowed are 1 to %d", uint64(math.MaxUint64))
	}
	if len(key.Key) > maxKeyBytes {
		return fmt.Errorf("%w: a key of %d bytes; allowed are %d", store.ErrTooLarge, len(key.Key), maxKeyBytes)
	}
	return nil
}

func checkMeta(key string, value []byte) error {
	if len(key) > maxMetaKey {
		return fmt.Errorf("%w: name of a meta record of %d bytes; allowed are %d", store.ErrTooLarge, len(key), maxMetaKey)
	}
	if len(value) > maxMetaValue {
		return fmt.Errorf("%w: meta record %q of %d bytes; allowed are %d", store.ErrTooLarge, key, len(value), maxMetaValue)
	}
	return nil
}

// newLookup prepares the reading of rows.
func newLookup(keys []store.RowKey) (*lookup, error) {
	l := &lookup{table: &rowTable, keys: make([]sqlKey, len(keys)), values: make([][]byte, len(keys)),
		full: func(i int) []byte { return keys[i].Key }}
	for i, k := range keys {
		if err := checkKey(k); err != nil {
			return nil, err
		}
		l.keys[i] = rowKey(k)
	}
	return l, nil
}

// newChange prepares the writing of a row.
func newChange(row *store.Row) (change, error) {
	if err := checkKey(row.RowKey); err != nil {
		return change{}, err
	}
	if len(row.Value) > maxValueBytes {
		return change{}, fmt.Errorf("%w: a value of %d bytes; allowed are %d", store.ErrTooLarge, len(row.Value), maxValueBytes)
	}
	ch := change{key: rowKey(row.RowKey), value: row.Value}
	if isHashed([]byte(ch.key.k)) {
		ch.full = row.Key
	}
	return ch, nil
}

// spaceState is a state of a row space.
type spaceState struct {
	space uint64
	state uint16
}

// longStates remembers which states are known to have long values. It never forgets: a state that
// is wrongly in it only costs a look-up.
type longStates struct{ known sync.Map }

func (l *longStates) has(ss spaceState) bool {
	_, ok := l.known.Load(ss)
	return ok
}

func (l *longStates) add(pairs ...spaceState) {
	for _, ss := range pairs {
		l.known.Store(ss, struct{}{})
	}
}
