// Package locktable has named exclusive locks for stores that live in one process.
package locktable

import (
	"context"
	"sync"
)

// Table is a set of named locks. The zero value is ready for use.
type Table struct {
	mu    sync.Mutex
	locks map[string]*lock
}

type lock struct {
	users int           // holders and waiters
	free  chan struct{} // holds one token while nobody holds the lock
}

// Acquire waits for a lock, or for the end of the context.
func (t *Table) Acquire(ctx context.Context, name string) error {
	t.mu.Lock()
	if t.locks == nil {
		t.locks = map[string]*lock{}
	}
	l := t.locks[name]
	if l == nil {
		l = &lock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		t.locks[name] = l
	}
	l.users++
	t.mu.Unlock()
	select {
	case <-l.free:
		return nil
	case <-ctx.Done():
		t.leave(name, l)
		return ctx.Err()
	}
}

// Release gives a lock back that the caller holds.
func (t *Table) Release(name string) {
	t.mu.Lock()
	l := t.locks[name]
	t.mu.Unlock()
	l.free <- struct{}{}
	t.leave(name, l)
}

func (t *Table) leave(name string, l *lock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.users--
	if l.users == 0 {
		delete(t.locks, name)
	}
}

// Held is the locks of one transaction.
type Held struct {
	table *Table
	names map[string]bool
}

// Hold starts a transaction's set of locks.
func (t *Table) Hold() *Held { return &Held{table: t, names: map[string]bool{}} }

// Acquire takes a lock for the transaction, which may hold it already.
func (h *Held) Acquire(ctx context.Context, name string) error {
	if h.names[name] {
		return nil
	}
	if err := h.table.Acquire(ctx, name); err != nil {
		return err
	}
	h.names[name] = true
	return nil
}

// Release gives all locks back.
func (h *Held) Release() {
	for name := range h.names {
		h.table.Release(name)
	}
	h.names = nil
}
