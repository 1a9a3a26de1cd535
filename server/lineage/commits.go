package lineage

import (
	"context"
	"sync"

	"github.com/flinkndb/flinkndb/server/store"
)

// commitQueue follows the durability of a session's writes, in their order.
type commitQueue struct {
	mu      sync.Mutex
	pending []pendingCommit
	working bool
	seq     uint64 // highest durable
	err     error
	news    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
}

type pendingCommit struct {
	seq    uint64
	commit store.Commit
}

func newCommitQueue() *commitQueue {
	ctx, cancel := context.WithCancel(context.Background())
	return &commitQueue{news: make(chan struct{}), ctx: ctx, cancel: cancel}
}

// add notes a commit whose durability is to be awaited.
func (q *commitQueue) add(seq uint64, commit store.Commit) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, pendingCommit{seq, commit})
	if !q.working {
		q.working = true
		go q.work()
	}
}

// work waits for the newest pending commit: commits become durable in order, so it speaks for those
// before it.
func (q *commitQueue) work() {
	for {
		q.mu.Lock()
		if len(q.pending) == 0 || q.err != nil {
			q.working = false
			q.mu.Unlock()
			return
		}
		batch := q.pending
		q.pending = nil
		q.mu.Unlock()
		q.await(batch)
	}
}

func (q *commitQueue) await(batch []pendingCommit) {
	for _, p := range batch {
		err := p.commit.Wait(q.ctx)
		q.mu.Lock()
		if err != nil {
			q.err = err
		} else {
			q.seq = max(q.seq, p.seq)
		}
		close(q.news)
		q.news = make(chan struct{})
		q.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (q *commitQueue) durable() (uint64, <-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.seq, q.news, q.err
}

func (q *commitQueue) stop() { q.cancel() }
