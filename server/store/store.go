// Package store defines what the lineage layer needs from a place that keeps bytes: rows and
// meta records, read in bulk, changed in transactions. A store knows nothing of versions,
// sessions or snapshots.
//
// Implementations: store/memory (tests and trial), store/pebble (embedded default) and store/ndb
// (MySQL NDB Cluster through SQL). All pass the suite in store/storetest.
package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Errors that callers tell apart with errors.Is. Implementations wrap them with the cause.
var (
	// ErrUnavailable says that the store does not answer now and may later. Implementations retry
	// temporary failures themselves, within the context's deadline, before they return it.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFull says that the store has no room. The transaction did not happen.
	ErrFull = errors.New("store full")
	// ErrTooLarge says that a key or value is above the limits of Limits. Nothing was written.
	ErrTooLarge = errors.New("key or value too large")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("store closed")
)

// RowKey names a row. Rows are ordered by (Space, Group, State, Key), Key bytewise.
type RowKey struct {
	Space uint64 // row space, never 0
	Group uint16 // key group
	State uint16 // state number within the row space
	Key   []byte // 0 to Limits.MaxKeyBytes bytes
}

// Compare orders row keys as stores keep them.
func (k RowKey) Compare(other RowKey) int {
	return cmp.Or(
		cmp.Compare(k.Space, other.Space), cmp.Compare(k.Group, other.Group),
		cmp.Compare(k.State, other.State), bytes.Compare(k.Key, other.Key))
}

// Name says in errors which row it is. Keys may be long: their beginning says enough.
func (k RowKey) Name() string {
	const shown = 64
	return fmt.Sprintf("row of space %d, group %d, state %d, key %x", k.Space, k.Group, k.State, k.Key[:min(len(k.Key), shown)])
}

// Row is a row with its bytes. Value is never nil in a stored row and may be empty.
type Row struct {
	RowKey
	Value []byte
}

// Range names rows of one state in one key group: those with Prefix, strictly after After (when
// After is not nil), in key order.
type Range struct {
	Space  uint64
	Group  uint16
	State  uint16
	Prefix []byte
	After  []byte
	// MaxRows and MaxBytes bound a page; at least one row is returned when there is one.
	// Zero stands for 1024 rows and 4 MiB.
	MaxRows  int
	MaxBytes int
	// KeysOnly allows the store to leave Value nil.
	KeysOnly bool
}

// Page is one page of a scan.
type Page struct {
	Rows []Row
	// Done says that no row of the range follows the last one here.
	Done bool
}

// Limits are the sizes that a store takes.
type Limits struct {
	MaxKeyBytes   int // of RowKey.Key
	MaxValueBytes int // of Row.Value
	MaxMetaKey    int // bytes of a meta key
	MaxMetaValue  int // bytes of a meta value
}

// Store keeps rows and meta records. All methods may be called concurrently. Slices passed in are
// not changed and not kept after return; slices returned belong to the caller.
type Store interface {
	// Name describes the store for logs and administrators, without secrets.
	Name() string
	Limits() Limits

	// Get returns the values of rows in the order of keys; nil where there is no row.
	Get(ctx context.Context, keys []RowKey) ([][]byte, error)
	// Scan returns a page. Rows of one page are from one consistent state of the store; pages of
	// one scan need not be.
	Scan(ctx context.Context, r Range) (Page, error)

	// Update runs fn in a transaction. Its changes become visible together, before Update returns,
	// and only if fn returns nil. fn may run several times (a conflict, a temporary failure), so it
	// must have no effect but through tx. The returned Commit tells when the changes are durable;
	// changes become durable in the order in which they became visible.
	Update(ctx context.Context, fn func(tx Tx) error) (Commit, error)

	// Meta returns a meta record; nil where there is none.
	Meta(ctx context.Context, key string) ([]byte, error)
	// ScanMeta returns all meta records whose key starts with prefix, in key order.
	ScanMeta(ctx context.Context, prefix string) ([]Meta, error)

	// DropSpace removes all rows of a row space. It may take long, works in pieces, and may be
	// called again after an interruption.
	DropSpace(ctx context.Context, space uint64) error
	// SpaceBytes estimates the bytes that a row space takes. It is cheap.
	SpaceBytes(ctx context.Context, space uint64) (uint64, error)
	// Bytes says what the whole store takes on disk or in memory; 0 = not known.
	Bytes(ctx context.Context) (uint64, error)

	// Close releases everything. Running calls end with ErrClosed or finish first.
	Close() error
}

// Meta is a meta record: a small named value.
type Meta struct {
	Key   string
	Value []byte
}

// Tx is one transaction. Not for concurrent use; not to be used after fn returns. Writes are seen
// by later reads of the same transaction.
type Tx interface {
	// LockMeta reads a meta record (nil where there is none) and holds its name exclusively until
	// the transaction ends: two transactions that lock the same name run one after the other. To
	// exclude deadlocks callers lock names in ascending order.
	LockMeta(key string) ([]byte, error)
	Meta(key string) ([]byte, error)
	ScanMeta(prefix string) ([]Meta, error)
	PutMeta(key string, value []byte) error
	DeleteMeta(key string) error

	// Get is Store.Get inside the transaction. The caller holds a lock (LockMeta) that keeps others
	// from changing these rows.
	Get(keys []RowKey) ([][]byte, error)
	// Scan is Store.Scan inside the transaction, with its earlier writes.
	Scan(r Range) (Page, error)
	// Put writes rows, Delete removes rows (absent ones are ignored). A later call wins over an
	// earlier one. Within one call each key occurs once.
	Put(rows []Row) error
	Delete(keys []RowKey) error
}

// Commit is the durability of one transaction.
type Commit interface {
	// Wait returns nil once the transaction survives the death of this process (and, as far as the
	// store promises it, of the store's). An error means that durability is not known; the server
	// must then treat the store as failed.
	Wait(ctx context.Context) error
}
