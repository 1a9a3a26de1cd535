// Package memory is a store.Store that lives and dies with its process: for tests, and for trying
// the product without a disk.
package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/google/btree"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/locktable"
)

const (
	maxKeyBytes   = 1 << 20
	maxValueBytes = 1 << 30
	degree        = 32
)

// Store keeps everything in two ordered maps.
type Store struct {
	locks locktable.Table

	mu     sync.RWMutex
	closed bool
	rows   *btree.BTreeG[item]
	metas  map[string][]byte
	size   uint64
}

// item is a row by its ordered name.
type item struct {
	name  string
	value []byte
}

// New returns an empty store.
func New() *Store {
	return &Store{
		rows:  btree.NewG(degree, func(a, b item) bool { return a.name < b.name }),
		metas: map[string][]byte{},
	}
}

// Name is "memory:".
func (s *Store) Name() string { return "memory:" }

// Limits are those of the address space more than of the store.
func (s *Store) Limits() store.Limits {
	return store.Limits{MaxKeyBytes: maxKeyBytes, MaxValueBytes: maxValueBytes, MaxMetaKey: maxKeyBytes, MaxMetaValue: maxValueBytes}
}

const prefixBytes = 12

// rowName orders rows as RowKey demands.
func rowName(k store.RowKey) string {
	name := make([]byte, prefixBytes, prefixBytes+len(k.Key))
	binary.BigEndian.PutUint64(name, k.Space)
	binary.BigEndian.PutUint16(name[8:], k.Group)
	binary.BigEndian.PutUint16(name[10:], k.State)
	return string(append(name, k.Key...))
}

func (s *Store) read(ctx context.Context, fn func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return store.ErrClosed
	}
	fn()
	return nil
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, keys []store.RowKey) ([][]byte, error) {
	values := make([][]byte, len(keys))
	err := s.read(ctx, func() {
		for i, k := range keys {
			if found, ok := s.rows.Get(item{name: rowName(k)}); ok {
				values[i] = bytes.Clone(found.value)
			}
		}
	})
	return values, err
}

// Scan implements store.Store.
func (s *Store) Scan(ctx context.Context, r store.Range) (store.Page, error) {
	var page store.Page
	err := s.read(ctx, func() {
		b := newPageBuilder(r)
		s.rows.AscendGreaterOrEqual(item{name: b.start}, func(it item) bool { return b.add(it.name, it.value) })
		page = b.page()
	})
	return page, err
}

// Meta implements store.Store.
func (s *Store) Meta(ctx context.Context, key string) ([]byte, error) {
	var value []byte
	err := s.read(ctx, func() { value = bytes.Clone(s.metas[key]) })
	return value, err
}

// ScanMeta implements store.Store.
func (s *Store) ScanMeta(ctx context.Context, prefix string) ([]store.Meta, error) {
	var metas []store.Meta
	err := s.read(ctx, func() {
		for k, v := range s.metas {
			if strings.HasPrefix(k, prefix) {
				metas = append(metas, store.Meta{Key: k, Value: bytes.Clone(v)})
			}
		}
	})
	sort.Slice(metas, func(i, j int) bool { return metas[i].Key < metas[j].Key })
	return metas, err
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	if err := s.read(ctx, func() {}); err != nil {
		return nil, err
	}
	t := &tx{ctx: ctx, s: s, held: s.locks.Hold(), rows: map[string][]byte{}, metas: map[string][]byte{}}
	defer t.held.Release()
	if err := fn(t); err != nil {
		return nil, err
	}
	return committed{}, t.commit()
}

// committed is durable as far as memory goes.
type committed struct{}

func (committed) Wait(ctx context.Context) error { return ctx.Err() }

// DropSpace implements store.Store.
func (s *Store) DropSpace(ctx context.Context, space uint64) error {
	if err := s.read(ctx, func() {}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range s.itemsOf(space) {
		s.rows.Delete(it)
		s.size -= uint64(len(it.name) + len(it.value))
	}
	return nil
}

func (s *Store) itemsOf(space uint64) []item {
	var items []item
	start := string(binary.BigEndian.AppendUint64(nil, space))
	s.rows.AscendGreaterOrEqual(item{name: start}, func(it item) bool {
		if !strings.HasPrefix(it.name, start) {
			return false
		}
		items = append(items, it)
		return true
	})
	return items
}

// SpaceBytes implements store.Store.
func (s *Store) SpaceBytes(ctx context.Context, space uint64) (uint64, error) {
	var n uint64
	err := s.read(ctx, func() {
		for _, it := range s.itemsOf(space) {
			n += uint64(len(it.name) + len(it.value))
		}
	})
	return n, err
}

// Bytes implements store.Store.
func (s *Store) Bytes(ctx context.Context) (uint64, error) {
	var n uint64
	err := s.read(ctx, func() { n = s.size })
	return n, err
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// pageBuilder collects the rows of a range in order.
type pageBuilder struct {
	r      store.Range
	prefix string
	start  string
	rows   []store.Row
	bytes  int
	full   bool
}

func newPageBuilder(r store.Range) *pageBuilder {
	if r.MaxRows <= 0 {
		r.MaxRows = 1024
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = 4 << 20
	}
	b := &pageBuilder{r: r}
	b.prefix = rowName(store.RowKey{Space: r.Space, Group: r.Group, State: r.State, Key: r.Prefix})
	b.start = b.prefix
	if r.After != nil {
		// The smallest name after another is that name with a zero byte.
		after := rowName(store.RowKey{Space: r.Space, Group: r.Group, State: r.State, Key: r.After}) + "\x00"
		b.start = max(b.start, after)
	}
	return b
}

// add takes the next row; false ends the walk.
func (b *pageBuilder) add(name string, value []byte) bool {
	if !strings.HasPrefix(name, b.prefix) {
		return false
	}
	if len(b.rows) >= b.r.MaxRows || b.bytes >= b.r.MaxBytes {
		b.full = true
		return false
	}
	row := store.Row{RowKey: store.RowKey{Space: b.r.Space, Group: b.r.Group, State: b.r.State, Key: []byte(name[prefixBytes:])}}
	if !b.r.KeysOnly {
		row.Value = bytes.Clone(value)
	}
	b.rows = append(b.rows, row)
	b.bytes += len(name) + len(value)
	return true
}

func (b *pageBuilder) page() store.Page { return store.Page{Rows: b.rows, Done: !b.full} }

// tx collects changes and applies them at its end. In the maps nil stands for a removal.
type tx struct {
	ctx   context.Context
	s     *Store
	held  *locktable.Held
	rows  map[string][]byte
	metas map[string][]byte
}

func (t *tx) LockMeta(key string) ([]byte, error) {
	if err := t.held.Acquire(t.ctx, key); err != nil {
		return nil, fmt.Errorf("lock %s: %w", key, err)
	}
	return t.Meta(key)
}

func (t *tx) Meta(key string) ([]byte, error) {
	if value, changed := t.metas[key]; changed {
		return bytes.Clone(value), nil
	}
	return t.s.Meta(t.ctx, key)
}

func (t *tx) ScanMeta(prefix string) ([]store.Meta, error) {
	stored, err := t.s.ScanMeta(t.ctx, prefix)
	if err != nil {
		return nil, err
	}
	merged := map[string][]byte{}
	for _, m := range stored {
		merged[m.Key] = m.Value
	}
	for k, v := range t.metas {
		if strings.HasPrefix(k, prefix) {
			merged[k] = bytes.Clone(v)
		}
	}
	var metas []store.Meta
	for k, v := range merged {
		if v != nil {
			metas = append(metas, store.Meta{Key: k, Value: v})
		}
	}
	sort.Slice(metas, func(i, j int) bool { return metas[i].Key < metas[j].Key })
	return metas, nil
}

func (t *tx) PutMeta(key string, value []byte) error {
	if len(key) > maxKeyBytes || len(value) > maxValueBytes {
		return fmt.Errorf("%w: meta record %.40q", store.ErrTooLarge, key)
	}
	t.metas[key] = append([]byte{}, value...)
	return nil
}

func (t *tx) DeleteMeta(key string) error {
	t.metas[key] = nil
	return nil
}

func (t *tx) Get(keys []store.RowKey) ([][]byte, error) {
	values, err := t.s.Get(t.ctx, keys)
	if err != nil || len(t.rows) == 0 {
		return values, err
	}
	for i, k := range keys {
		if value, changed := t.rows[rowName(k)]; changed {
			values[i] = bytes.Clone(value)
		}
	}
	return values, nil
}

func (t *tx) Scan(r store.Range) (store.Page, error) {
	if len(t.rows) == 0 {
		return t.s.Scan(t.ctx, r)
	}
	var page store.Page
	err := t.s.read(t.ctx, func() {
		b := newPageBuilder(r)
		own := t.ownItems(b.prefix, b.start)
		s := 0
		ended := false
		t.s.rows.AscendGreaterOrEqual(item{name: b.start}, func(it item) bool {
			if !strings.HasPrefix(it.name, b.prefix) {
				return false
			}
			for s < len(own) && own[s].name < it.name {
				if own[s].value != nil && !b.add(own[s].name, own[s].value) {
					ended = true
					return false
				}
				s++
			}
			if s < len(own) && own[s].name == it.name {
				it = own[s]
				s++
			}
			if it.value != nil && !b.add(it.name, it.value) {
				ended = true
				return false
			}
			return true
		})
		for ; !ended && s < len(own); s++ {
			if own[s].value != nil && !b.add(own[s].name, own[s].value) {
				break
			}
		}
		page = b.page()
	})
	return page, err
}

// ownItems are the transaction's changes in a range, in order.
func (t *tx) ownItems(prefix, start string) []item {
	var own []item
	for name, value := range t.rows {
		if strings.HasPrefix(name, prefix) && name >= start {
			own = append(own, item{name, value})
		}
	}
	sort.Slice(own, func(i, j int) bool { return own[i].name < own[j].name })
	return own
}

func (t *tx) Put(rows []store.Row) error {
	for _, r := range rows {
		if len(r.Key) > maxKeyBytes || len(r.Value) > maxValueBytes {
			return fmt.Errorf("%w: row with a key of %d and a value of %d bytes", store.ErrTooLarge, len(r.Key), len(r.Value))
		}
		t.rows[rowName(r.RowKey)] = append([]byte{}, r.Value...)
	}
	return nil
}

func (t *tx) Delete(keys []store.RowKey) error {
	for _, k := range keys {
		t.rows[rowName(k)] = nil
	}
	return nil
}

func (t *tx) commit() error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.s.closed {
		return store.ErrClosed
	}
	for name, value := range t.rows {
		t.s.apply(name, value)
	}
	for key, value := range t.metas {
		if value == nil {
			delete(t.s.metas, key)
		} else {
			t.s.metas[key] = value
		}
	}
	return nil
}

func (s *Store) apply(name string, value []byte) {
	var old item
	var existed bool
	if value == nil {
		old, existed = s.rows.Delete(item{name: name})
	} else {
		old, existed = s.rows.ReplaceOrInsert(item{name, value})
		s.size += uint64(len(name) + len(value))
	}
	if existed {
		s.size -= uint64(len(old.name) + len(old.value))
	}
}
