package lineage

import (
	"sync"
	"time"
)

// leaseWatch knows which sessions have been left alone for longer than their lease. It compares no times of day:
// clocks of machines differ, and they jump. A session is expired when this server has seen its record unrenewed for
// a whole lease, by its own count of time. While the server was not running nobody could renew at it, so each
// server starts counting anew.
type leaseWatch struct {
	elapsed func() time.Duration

	mu   sync.Mutex
	seen map[uint64]sighting
}

// sighting is when this server came to see a session's latest renewal.
type sighting struct {
	renewed time.Time // as the record has it: only whether it is the same counts
	since   time.Duration
}

func newLeaseWatch(elapsed func() time.Duration) *leaseWatch {
	return &leaseWatch{elapsed: elapsed, seen: map[uint64]sighting{}}
}

// remaining is what is left of a session's lease, negative when it has expired. A session that has a stream at
// this server (attached) has all of it.
func (w *leaseWatch) remaining(s *sessionRecord, attached bool) time.Duration {
	now := w.elapsed()
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.seen[s.ID]
	if !known || attached || !last.renewed.Equal(s.Renewed) {
		last = sighting{s.Renewed, now}
		w.seen[s.ID] = last
	}
	return s.Lease - (now - last.since)
}

// left notes that a session's stream at this server has ended: its lease counts from now.
func (w *leaseWatch) left(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, known := w.seen[id]; known {
		w.seen[id] = sighting{last.renewed, w.elapsed()}
	}
}

// keep forgets the sessions that are not among the live ones.
func (w *leaseWatch) keep(live map[uint64]*sessionRecord) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.seen {
		if live[id] == nil {
			delete(w.seen, id)
		}
	}
}

// remaining is what is left of a session's lease as this server sees it.
func (l *Lineage) remaining(s *sessionRecord) time.Duration {
	l.mu.Lock()
	a := l.live[s.ID]
	attached := a != nil && a.streams > 0
	l.mu.Unlock()
	return l.leases.remaining(s, attached)
}

// expired says whether a session has been without a stream for longer than its lease.
func (l *Lineage) expired(s *sessionRecord) bool { return l.remaining(s) < 0 }

// steadyNow is the time of day without the jumps that the machine's clock has made since this server started. Ages
// are measured with it.
func (l *Lineage) steadyNow() time.Time { return l.started.Add(l.opt.Elapsed()) }
