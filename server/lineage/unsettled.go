package lineage

import (
	"sync"
	"sync/atomic"

	"github.com/flinkndb/flinkndb/server/store"
)

// unsettled remembers the rows that a session has made since the newest snapshot that Flink has confirmed. When the
// session ends, the next one goes back to that snapshot, and does not see these rows; they have one version, so the
// sweeper would not look at them otherwise. For concurrent use.
type unsettled struct {
	budget *rowBudget

	mu     sync.Mutex
	frames []unsettledFrame // by epoch
	missed uint64           // newest epoch that had more rows than are remembered; 0 = none
	until  uint64           // newest epoch that a confirmed snapshot has; 0 = none
}

type unsettledFrame struct {
	epoch  uint64
	rows   []store.RowKey
	weight int
}

// rowBudget bounds the rows remembered by all sessions of a server, by their weight.
type rowBudget struct {
	limit int64
	used  atomic.Int64
}

func (b *rowBudget) take(n int) bool {
	if b.used.Add(int64(n)) <= b.limit {
		return true
	}
	b.giveBack(n)
	return false
}

func (b *rowBudget) giveBack(n int) { b.used.Add(-int64(n)) }

// add remembers rows; their keys are copied.
func (u *unsettled) add(epoch uint64, rows []store.RowKey) {
	if len(rows) == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if epoch == u.missed {
		return
	}
	weight := 0
	for i := range rows {
		weight += rowWeight(rows[i].Key)
	}
	if !u.budget.take(weight) {
		u.forget(len(u.frames))
		u.missed = epoch
		return
	}
	u.frames = append(u.frames, unsettledFrame{epoch, copyKeys(rows), weight})
}

// miss notes that it is not known which rows were made in an epoch.
func (u *unsettled) miss(epoch uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.missed = max(u.missed, epoch)
}

// copyKeys copies row keys, their bytes one behind the other.
func copyKeys(rows []store.RowKey) []store.RowKey {
	size := 0
	for i := range rows {
		size += len(rows[i].Key)
	}
	bytes := make([]byte, 0, size)
	copied := make([]store.RowKey, len(rows))
	for i, row := range rows {
		start := len(bytes)
		bytes = append(bytes, row.Key...)
		row.Key = bytes[start:len(bytes):len(bytes)]
		copied[i] = row
	}
	return copied
}

// confirmed forgets the rows up to an epoch that a snapshot has which Flink counts on.
func (u *unsettled) confirmed(epoch uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.frames) && u.frames[n].epoch <= epoch {
		n++
	}
	u.forget(n)
	if u.missed <= epoch {
		u.missed = 0
	}
	u.until = max(u.until, epoch)
}

// forget drops the first n frames.
func (u *unsettled) forget(n int) {
	for _, f := range u.frames[:n] {
		u.budget.giveBack(f.weight)
	}
	u.frames = append([]unsettledFrame(nil), u.frames[n:]...)
}

// take hands the rows over; complete is false when there are more.
func (u *unsettled) take() (rows []store.RowKey, complete bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range u.frames {
		rows = append(rows, f.rows...)
	}
	u.forget(len(u.frames))
	return rows, u.missed == 0
}

// settled is what a session has seen of its top row space that was to stay: what it was restored from, and its own
// epochs up to a confirmed snapshot.
func (u *unsettled) settled(top layer) layer {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.until > 0 {
		return layer{top.Space, top.History.until(u.until)}
	}
	return layer{top.Space, top.History[:len(top.History)-1]}
}

// sweepUnsettled has the sweeper look at the rows of a session that has ended: those that it remembers, and all if they are
// not all there are, or nobody goes on with what was settled.
func (l *Lineage) sweepUnsettled(a *attached) {
	rows, complete := a.unsettled.take()
	l.garbage.add(rows)
	if !complete {
		l.sweepSpaces(a.record.Parts)
	}
	for _, p := range a.record.Parts {
		l.garbage.end(endedView{a.unsettled.settled(p.Layers[0]), p.Range, a.record.ID})
		l.garbage.endLayers(p.Range, p.Layers[1:], a.record.ID)
	}
	l.garbage.wake()
}

// sweepOrphans has row spaces looked at of which views have ended that saw what nobody else sees, because the job went
// back behind it: such rows have one version. The catalog has been read since the views ended: of several that end at
// different servers at the same time, the last finds the others gone.
func (l *Lineage) sweepOrphans(ended []endedView) {
	for _, v := range ended {
		if !l.catalog.continued(v) {
			l.garbage.sweepAll(v.Space)
		}
	}
}

// sweepSpaces has row spaces looked at as a whole.
func (l *Lineage) sweepSpaces(parts []part) {
	for _, id := range spacesOf(parts) {
		l.garbage.sweepAll(id)
	}
}
