package lineage

import (
	"context"

	"github.com/flinkndb/flinkndb/server/store"
)

// hookedStore has something happen just before a transaction begins, or fails it: what another server does, or a
// store that hiccups.
type hookedStore struct {
	store.Store
	before func() error // nil while nothing is to happen
}

func (s *hookedStore) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	if s.before != nil {
		if err := s.before(); err != nil {
			return nil, err
		}
	}
	return s.Store.Update(ctx, fn)
}

// failAfter has transactions fail after the next n.
func (s *hookedStore) failAfter(n int, failure error) {
	s.before = func() error {
		if n--; n < 0 {
			return failure
		}
		return nil
	}
}

// once has something happen just before the next transaction.
func (s *hookedStore) once(fn func()) {
	s.before = func() error {
		s.before = nil
		fn()
		return nil
	}
}

// lateCommits has each transaction arrive twice, as with a database whose answer to COMMIT was lost and which showed no
// trace of the transaction, because COMMIT was still on its way: the store tries again, and finds it done.
type lateCommits struct {
	store.Store
	on bool
}

func (s *lateCommits) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	if s.on {
		if _, err := s.Store.Update(ctx, fn); err != nil {
			return nil, err
		}
	}
	return s.Store.Update(ctx, fn)
}

// unheardCommits loses the answers to transactions while it is on: they take place, and the caller is not told.
type unheardCommits struct {
	store.Store
	on bool
}

func (s *unheardCommits) Update(ctx context.Context, fn func(store.Tx) error) (store.Commit, error) {
	commit, err := s.Store.Update(ctx, fn)
	if s.on && err == nil {
		return nil, store.ErrUnavailable
	}
	return commit, err
}
