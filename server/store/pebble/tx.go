package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/locktable"
)

// Update implements store.Store. Locks are names in this process, so nothing has to be tried again.
func (s *Store) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	t := &tx{ctx: ctx, s: s, batch: s.db.NewBatch(), held: s.locks.Hold()}
	defer t.held.Release()
	if err := fn(t); err != nil {
		return nil, errors.Join(err, t.batch.Close())
	}
	return t.commit()
}

// tx gathers writes in a batch. Rows are read from the store as long as nothing was written; from
// then on from an indexed copy of the batch.
type tx struct {
	ctx       context.Context
	s         *Store
	batch     *pebble.Batch
	held      *locktable.Held
	metas     map[string][]byte // changed ones; nil = removed
	rowWrites bool
}

func (t *tx) commit() (store.Commit, error) {
	for key, value := range t.metas {
		var err error
		if value == nil {
			err = t.batch.Delete(metaName(key), nil)
		} else {
			err = t.batch.Set(metaName(key), value, nil)
		}
		if err != nil {
			return nil, fmt.Errorf("write meta records: %w", mapError(err))
		}
	}
	if t.batch.Empty() {
		return done{}, t.batch.Close()
	}
	if err := t.s.db.ApplyNoSyncWait(t.batch, pebble.Sync); err != nil {
		return nil, fmt.Errorf("commit: %w", mapError(err))
	}
	c := &commit{finished: make(chan struct{})}
	go c.await(t.batch, t.s.log)
	return c, nil
}

// done is the commit of a transaction without changes.
type done struct{}

func (done) Wait(ctx context.Context) error { return ctx.Err() }

// commit is one batch on its way to the disk. Pebble syncs many with one write.
type commit struct {
	finished chan struct{}
	err      error
}

// await ends the process when the log cannot be written: readers see what was committed and will not be durable.
func (c *commit) await(batch *pebble.Batch, log logger) {
	c.err = batch.SyncWait()
	if c.err != nil && !errors.Is(c.err, pebble.ErrClosed) {
		log.Fatalf("%v", c.err)
	}
	c.err = errors.Join(c.err, batch.Close())
	close(c.finished)
}

func (c *commit) Wait(ctx context.Context) error {
	select {
	case <-c.finished:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
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
	return getOne(t.s.db, metaName(key))
}

func (t *tx) ScanMeta(prefix string) ([]store.Meta, error) {
	stored, err := t.s.scanMeta(prefix)
	if err != nil {
		return nil, err
	}
	merged := make(map[string][]byte, len(stored))
	for _, m := range stored {
		merged[m.Key] = m.Value
	}
	for key, value := range t.metas {
		if strings.HasPrefix(key, prefix) {
			merged[key] = value
		}
	}
	metas := make([]store.Meta, 0, len(merged))
	for key, value := range merged {
		if value != nil {
			metas = append(metas, store.Meta{Key: key, Value: bytes.Clone(value)})
		}
	}
	sort.Slice(metas, func(i, j int) bool { return metas[i].Key < metas[j].Key })
	return metas, nil
}

func (t *tx) PutMeta(key string, value []byte) error {
	if len(key) > maxKeyBytes || len(value) > maxValueBytes {
		return fmt.Errorf("%w: meta record %.40q of %d bytes", store.ErrTooLarge, key, len(value))
	}
	t.setMeta(key, append([]byte{}, value...))
	return nil
}

func (t *tx) DeleteMeta(key string) error {
	t.setMeta(key, nil)
	return nil
}

func (t *tx) setMeta(key string, value []byte) {
	if t.metas == nil {
		t.metas = map[string][]byte{}
	}
	t.metas[key] = value
}

// rows is where rows are read from.
func (t *tx) rows() (pebble.Reader, error) {
	if !t.rowWrites {
		return t.s.db, nil
	}
	if !t.batch.Indexed() {
		indexed := t.s.db.NewIndexedBatch()
		if err := indexed.Apply(t.batch, nil); err != nil {
			return nil, fmt.Errorf("index the transaction: %w", errors.Join(err, indexed.Close()))
		}
		if err := t.batch.Close(); err != nil {
			return nil, fmt.Errorf("index the transaction: %w", errors.Join(err, indexed.Close()))
		}
		t.batch = indexed
	}
	return t.batch, nil
}

func (t *tx) Get(keys []store.RowKey) ([][]byte, error) {
	reader, err := t.rows()
	if err != nil {
		return nil, err
	}
	return get(reader, keys)
}

func (t *tx) Scan(r store.Range) (store.Page, error) {
	reader, err := t.rows()
	if err != nil {
		return store.Page{}, err
	}
	return scan(reader, r)
}

func (t *tx) Put(rows []store.Row) error {
	t.rowWrites = true
	for i := range rows {
		r := &rows[i]
		if len(r.Key) > maxKeyBytes || len(r.Value) > maxValueBytes {
			return fmt.Errorf("%w: row with a key of %d and a value of %d bytes", store.ErrTooLarge, len(r.Key), len(r.Value))
		}
		op := t.batch.SetDeferred(rowPrefixBytes+len(r.Key), len(r.Value))
		appendRowKey(op.Key[:0], r.RowKey)
		copy(op.Value, r.Value)
		if err := op.Finish(); err != nil {
			return fmt.Errorf("write a row: %w", err)
		}
	}
	return nil
}

func (t *tx) Delete(keys []store.RowKey) error {
	t.rowWrites = true
	for _, k := range keys {
		op := t.batch.DeleteDeferred(rowPrefixBytes + len(k.Key))
		appendRowKey(op.Key[:0], k)
		if err := op.Finish(); err != nil {
			return fmt.Errorf("delete a row: %w", err)
		}
	}
	return nil
}
