package ndb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

const (
	firstPause = 5 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// withRetry runs fn on one MySQL server after the other until it succeeds, fails for good, or time
// is up: the context's deadline or the store's retry timeout, whichever is first. fn must leave
// nothing behind when it fails.
func (s *Store) withRetry(ctx context.Context, op string, fn func(ctx context.Context, h *host) error) error {
	deadline := time.Now().Add(s.cfg.retryTimeout)
	for attempt := 0; ; attempt++ {
		if s.closed.Load() {
			return fmt.Errorf("%s: %w", op, store.ErrClosed)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		h := s.hosts.pick()
		err := fn(ctx, h)
		if err == nil {
			h.markUp()
			return nil
		}
		var outside *callerError
		if errors.As(err, &outside) {
			return outside.err
		}
		if ctx.Err() != nil || s.closed.Load() {
			return s.interrupted(ctx, op, err)
		}
		c := classify(err)
		if c == permanent || time.Now().After(deadline) {
			s.metrics.failed(op)
			return explain(op, s.at(h, err))
		}
		s.metrics.retried(op, c)
		if c == hostDown {
			h.markDown()
		}
		if !sleep(ctx, s.closing, pause(c, attempt)) {
			return s.interrupted(ctx, op, err)
		}
	}
}

// at says which server an error came from.
func (s *Store) at(h *host, err error) error {
	if len(s.hosts.all) == 1 {
		return err
	}
	return fmt.Errorf("MySQL server %s: %w", h.address, err)
}

// interrupted is the error of a call whose context ended, or whose store was closed, while it was
// failing with cause.
func (s *Store) interrupted(ctx context.Context, op string, cause error) error {
	if s.closed.Load() {
		return fmt.Errorf("%s: %w", op, store.ErrClosed)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && classify(cause) != permanent {
		s.metrics.failed(op)
		return fmt.Errorf("%s: %w: %w (last failure: %v)", op, store.ErrUnavailable, ctx.Err(), cause)
	}
	return fmt.Errorf("%s: %w", op, ctx.Err())
}

// pause is how long to wait before attempt+1, with a random part so that servers do not march in step.
func pause(c class, attempt int) time.Duration {
	d := min(firstPause<<min(attempt, 10), longPause)
	if c == conflict {
		d = min(d, 50*time.Millisecond)
	}
	return d/2 + rand.N(d)
}

// sleep returns false if ctx ends or stop is closed first.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	}
}

// callerError carries an error of the caller's own function out of a transaction, past the retries.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }
