package bench

import (
	"context"

	"github.com/flinkndb/flinkndb/server/store"
)

// storeTarget measures a store through its interface.
type storeTarget struct{ s store.Store }

func (t *storeTarget) get(ctx context.Context, keys []store.RowKey) (int, error) {
	values, err := t.s.Get(ctx, keys)
	n := 0
	for _, v := range values {
		if v != nil {
			n++
		}
	}
	return n, err
}

// put does not wait for durability: neither does a server before it takes the next frame.
func (t *storeTarget) put(ctx context.Context, rows []store.Row) error {
	_, err := t.s.Update(ctx, func(tx store.Tx) error { return tx.Put(rows) })
	return err
}

func (t *storeTarget) update(ctx context.Context, rows []store.Row) error {
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
	}
	_, err := t.s.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.Get(keys); err != nil {
			return err
		}
		return tx.Put(rows)
	})
	return err
}

func (t *storeTarget) scan(ctx context.Context, group uint16, after []byte, rows int) (int, []byte, error) {
	page, err := t.s.Scan(ctx, store.Range{Space: benchSpace, Group: group, After: after, MaxRows: rows, MaxBytes: 1 << 30})
	if err != nil || page.Done {
		return len(page.Rows), nil, err
	}
	return len(page.Rows), page.Rows[len(page.Rows)-1].Key, nil
}

func (t *storeTarget) snapshot(ctx context.Context, rows []store.Row, record []byte, name string) error {
	if err := t.put(ctx, rows); err != nil {
		return err
	}
	commit, err := t.s.Update(ctx, func(tx store.Tx) error {
		if _, err := tx.LockMeta(name); err != nil {
			return err
		}
		return tx.PutMeta(name, record)
	})
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}
