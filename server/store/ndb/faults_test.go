package ndb

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/flinkndb/flinkndb/server/store"
	cluster "github.com/flinkndb/flinkndb/tests/ndb"
)

// startCluster starts a cluster of its own for a test that kills parts of it.
func startCluster(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	cluster.Require(t, cluster.TestNDBVariable)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	o.Dir = t.TempDir()
	c, err := cluster.Start(ctx, o)
	cluster.SkipIfAbsent(t, err)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.KillAll(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// load are writers that count what they did, in the store and beside it.
type load struct {
	s       *Store
	done    [4]atomic.Uint64
	stop    chan struct{}
	wg      sync.WaitGroup
	slowest atomic.Int64
	failed  atomic.Pointer[error]
}

// startLoad starts writers. Each transaction raises its writer's counter by one and writes rows
// that hold the counter's value: applied twice or not at all, it would show.
func startLoad(t *testing.T, s *Store) *load {
	l := &load{s: s, stop: make(chan struct{})}
	for w := range l.done {
		l.wg.Go(func() { l.write(t.Context(), w) })
	}
	return l
}

func (l *load) write(ctx context.Context, w int) {
	for n := uint64(1); ; n++ {
		select {
		case <-l.stop:
			return
		default:
		}
		began := time.Now()
		_, err := l.s.Update(ctx, func(tx store.Tx) error { return increment(tx, w) })
		if err != nil {
			l.failed.CompareAndSwap(nil, &err)
			return
		}
		l.slowest.Store(max(l.slowest.Load(), int64(time.Since(began))))
		l.done[w].Store(n)
	}
}

func counterName(w int) string { return fmt.Sprintf("counter%d", w) }

func increment(tx store.Tx, w int) error {
	old, err := tx.LockMeta(counterName(w))
	if err != nil {
		return err
	}
	n := uint64(1)
	if old != nil {
		n = binary.BigEndian.Uint64(old) + 1
	}
	rows := make([]store.Row, 50)
	for i := range rows {
		rows[i] = store.Row{RowKey: store.RowKey{Space: 1, Group: uint16(w), Key: []byte(fmt.Sprint(i))}, Value: binary.BigEndian.AppendUint64(nil, n)}
	}
	if err := tx.Put(rows); err != nil {
		return err
	}
	return tx.PutMeta(counterName(w), binary.BigEndian.AppendUint64(nil, n))
}

// await waits until every writer has done more than it has now.
func (l *load) await(t *testing.T) {
	t.Helper()
	var before [len(l.done)]uint64
	for w := range l.done {
		before[w] = l.done[w].Load()
	}
	deadline := time.Now().Add(time.Minute)
	for w := 0; w < len(l.done); {
		switch {
		case l.failed.Load() != nil:
			t.Fatal(*l.failed.Load())
		case l.done[w].Load() > before[w]+5:
			w++
		case time.Now().After(deadline):
			t.Fatalf("writer %d does not go on", w)
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// finish stops the writers and compares the store with what they did.
func (l *load) finish(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	if err := l.failed.Load(); err != nil {
		t.Fatal(*err)
	}
	total := uint64(0)
	for w := range l.done {
		total += l.done[w].Load()
		checkCounter(t, l.s, w, l.done[w].Load())
	}
	t.Logf("%d transactions; the slowest took %v", total, time.Duration(l.slowest.Load()))
}

func checkCounter(t *testing.T, s *Store, w int, want uint64) {
	t.Helper()
	v, err := s.Meta(t.Context(), counterName(w))
	if err != nil {
		t.Fatal(err)
	}
	if v == nil || binary.BigEndian.Uint64(v) != want {
		t.Errorf("counter %d is %x, want %d", w, v, want)
	}
	if want == 0 {
		return
	}
	page, err := s.Scan(t.Context(), store.Range{Space: 1, Group: uint16(w)})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Rows) != 50 {
		t.Errorf("writer %d: %d rows, want 50", w, len(page.Rows))
	}
	for _, r := range page.Rows {
		if n := binary.BigEndian.Uint64(r.Value); n != want {
			t.Errorf("writer %d: row %s holds %d, want %d", w, r.Key, n, want)
		}
	}
}

func TestKilledDataNode(t *testing.T) {
	c, url := redundantCluster(t)
	l := startLoad(t, openTest(t, url))
	ids := c.DataNodeIDs()
	id := ids[rand.IntN(len(ids))]
	l.await(t)
	if err := c.KillDataNode(id); err != nil {
		t.Fatal(err)
	}
	l.await(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := c.StartDataNode(ctx, id); err != nil {
		t.Fatal(err)
	}
	l.await(t)
	l.finish(t)
}

func TestKilledMySQLServer(t *testing.T) {
	c, url := redundantCluster(t)
	l := startLoad(t, openTest(t, url))
	for _, n := range []int{1, 2} {
		l.await(t)
		time.Sleep(time.Duration(rand.N(200)) * time.Millisecond) // at any point of a transaction
		if err := c.KillMySQL(n); err != nil {
			t.Fatal(err)
		}
		l.await(t)
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		err := c.StartMySQL(ctx, n)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		l.await(t)
	}
	l.finish(t)
}

// TestHungMySQLServer: a server that neither answers nor closes its connections is given up.
func TestHungMySQLServer(t *testing.T) {
	c, url := redundantCluster(t)
	l := startLoad(t, openTest(t, url))
	l.await(t)
	if err := c.PauseMySQL(1); err != nil {
		t.Fatal(err)
	}
	l.await(t)
	if err := c.ResumeMySQL(1); err != nil {
		t.Fatal(err)
	}
	l.await(t)
	l.finish(t)
}

// TestTwoServers has two stores, as two FlinkNDB servers have them, work on the same records.
func TestTwoServers(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			url := e.url(t)
			stores := []*Store{openTest(t, url), openTest(t, url)}
			var wg sync.WaitGroup
			for _, s := range stores {
				wg.Go(func() {
					for range 50 {
						if _, err := s.Update(t.Context(), func(tx store.Tx) error { return increment(tx, 0) }); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			checkCounter(t, stores[0], 0, 100)
		})
	}
}

// TestLostCommitAnswers cuts connections at the worst moment: when a COMMIT is under way.
func TestLostCommitAnswers(t *testing.T) {
	onEngines(t, func(t *testing.T, s *Store) {
		l := startLoad(t, s)
		killer := s.hosts.all[0].db
		kills := 0
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			rows, err := killer.QueryContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db=DATABASE() AND (info LIKE '%COMMIT' OR state LIKE '%commit%')")
			if err != nil {
				t.Fatal(err)
			}
			var ids []int
			for rows.Next() {
				var id int
				if err := rows.Scan(&id); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if _, err := killer.ExecContext(t.Context(), fmt.Sprintf("KILL CONNECTION %d", id)); err == nil {
					kills++
				}
			}
		}
		l.finish(t)
		done, undone := counted(t, s.metrics.outcomes, "done"), counted(t, s.metrics.outcomes, "undone")
		t.Logf("%d connections killed; of commits without an answer %v were done, %v were not", kills, done, undone)
		if done+undone == 0 {
			t.Error("no COMMIT lost its answer: the test shows nothing")
		}
	})
}

// TestTransactionsUpToTheClustersLimit: a transaction that the data nodes cannot hold is refused
// with a message that says so, before it is sent.
func TestTransactionsUpToTheClustersLimit(t *testing.T) {
	const limit = 8000
	c := startCluster(t, cluster.Options{DataMemory: "256M", Settings: map[string]string{"MaxNoOfConcurrentOperations": fmt.Sprint(limit)}})
	s := openTest(t, c.URL())
	rows := make([]store.Row, limit+1)
	for i := range rows {
		rows[i] = row(1, uint16(i%16), 0, fmt.Sprint(i), "value")
	}
	put(t, s, rows[:limit-100]...)
	put(t, s, rows[:limit-100]...) // replacing takes no more
	checkRows(t, s, rows[:limit-100])
	_, err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Put(rows) })
	wantMessage(t, err, "MaxNoOfConcurrentOperations")
	put(t, s, row(1, 0, 0, "small", "still works"))
}

func TestFullDataMemory(t *testing.T) {
	c := startCluster(t, cluster.Options{DataMemory: "80M", Settings: map[string]string{"SharedGlobalMemory": "20M"}})
	s := openTest(t, c.URL())
	written := fillUp(t, s)
	t.Logf("full after %d transactions", written)
	checkFill := func(upTo int) {
		t.Helper()
		for _, n := range []int{0, upTo / 2, upTo - 1} {
			checkRows(t, s, fillRows(n))
		}
		if values, err := s.Get(t.Context(), []store.RowKey{fillRows(upTo)[0].RowKey}); err != nil || values[0] != nil {
			t.Errorf("a row of the refused transaction: %d bytes (%v)", len(values[0]), err)
		}
	}
	checkFill(written)
	// Room comes back, by itself and without a restart of the server.
	if err := s.DropSpace(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	put(t, s, row(1, 0, 0, "after", "the store works again"))
	checkFill(written)
}

func fillRows(n int) []store.Row {
	rows := make([]store.Row, 100)
	for i := range rows {
		rows[i] = store.Row{RowKey: store.RowKey{Space: 1, Group: uint16(i % 4), Key: []byte(fmt.Sprintf("%d/%d", n, i))}, Value: filled(1500, uint64(n))}
	}
	return rows
}

// fillUp writes to row spaces 1 and 2 until the store is full; it returns how many transactions of
// space 1 succeeded.
func fillUp(t *testing.T, s *Store) int {
	t.Helper()
	for n := range 10000 {
		for _, space := range []uint64{1, 2} {
			rows := fillRows(n)
			for i := range rows {
				rows[i].Space = space
			}
			_, err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Put(rows) })
			if errors.Is(err, store.ErrFull) {
				t.Logf("the error: %v", err)
				if space == 2 {
					n++
				}
				return n
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the store does not fill up")
	return 0
}

// TestEverythingKilled kills all processes of the cluster at once, twice, right after commits
// that were confirmed to be on disk and commits that were not.
func TestEverythingKilled(t *testing.T) {
	c, url := redundantCluster(t)
	for round := range 2 {
		s := openTest(t, withOption(url, "durability=disk"))
		confirmed, unconfirmed := []byte(fmt.Sprintf("confirmed%d", round)), []byte(fmt.Sprintf("unconfirmed%d", round))
		began := time.Now()
		rows := killRows(confirmed)
		put(t, s, rows...) // waits for the disk
		took := time.Since(began)
		commit, err := s.Update(t.Context(), func(tx store.Tx) error { return tx.Put(killRows(unconfirmed)) })
		if err != nil {
			t.Fatal(err)
		}
		if err := c.KillAll(); err != nil {
			t.Fatal(err)
		}
		restart(t, c)
		checkRows(t, s, rows)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		waitErr := commit.Wait(ctx)
		cancel()
		lost := checkAllOrNothing(t, s, killRows(unconfirmed))
		if lost == (waitErr == nil) {
			t.Errorf("round %d: the unconfirmed rows are lost: %v, but Wait said: %v", round, lost, waitErr)
		}
		t.Logf("round %d: durable after %v; unconfirmed rows lost: %v (%v)", round, took, lost, waitErr)
	}
}

// TestProbesNoticeLosses takes away what a crash of the whole cluster would take away.
func TestProbesNoticeLosses(t *testing.T) {
	s := openTest(t, ndbURL(t))
	commit := func() *ticket {
		m := s.marks.take()
		exec(t, s, m.write(s.writer))
		return &ticket{mark: m}
	}
	probe := func(trail *probeTrail, tickets ...*ticket) error {
		_, err := s.probe(t.Context(), trail, tickets)
		return err
	}
	var trail probeTrail
	kept, lost := commit(), commit()
	if err := probe(&trail, kept, lost); err != nil {
		t.Fatalf("all is there: %v", err)
	}
	if err := probe(&trail); err != nil {
		t.Fatalf("the trail is whole: %v", err)
	}
	exec(t, s, fmt.Sprintf("UPDATE server_commit SET seq=seq-1 WHERE writer=%d AND slot=%d", s.writer, lost.mark.slot))
	if err := probe(&trail, kept, lost); !errors.Is(err, errCommitsLost) {
		t.Errorf("a mark is lost: %v", err)
	}
	if err := probe(&trail, kept); err != nil {
		t.Errorf("after a probe that found a loss: %v", err)
	}
	exec(t, s, fmt.Sprintf("UPDATE server_commit SET seq=seq-1 WHERE writer=%d AND slot=%d", s.writer, probeSlot))
	if err := probe(&trail); !errors.Is(err, errCommitsLost) {
		t.Errorf("the last probe is lost: %v", err)
	}
	exec(t, s, fmt.Sprintf("DELETE FROM server_commit WHERE writer=%d", s.writer))
	if err := probe(&trail); !errors.Is(err, errCommitsLost) {
		t.Errorf("all marks are lost: %v", err)
	}
	if err := probe(&probeTrail{}, commit()); err != nil {
		t.Errorf("a new trail: %v", err)
	}
}

// TestDurableInOrder waits for many commits at once: they become durable, and reading ones too.
func TestDurableInOrder(t *testing.T) {
	s := openTest(t, withOption(ndbURL(t), "durability=disk"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var commits []store.Commit
	for n := range 50 {
		c, err := s.Update(ctx, func(tx store.Tx) error {
			if n%5 == 0 {
				_, err := tx.Meta("m")
				return err
			}
			return tx.PutMeta("m", []byte(fmt.Sprint(n)))
		})
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, c)
	}
	if err := commits[len(commits)-1].Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for n, c := range commits {
		past, cancel := context.WithTimeout(ctx, time.Millisecond)
		if err := c.Wait(past); err != nil {
			t.Errorf("commit %d is not durable, but the last one is: %v", n, err)
		}
		cancel()
	}
	if n := counted(t, s.metrics.failures, "probe"); n != 0 {
		t.Errorf("%v probes failed", n)
	}
}

func restart(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := c.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

func killRows(name []byte) []store.Row {
	rows := make([]store.Row, 500)
	for i := range rows {
		rows[i] = store.Row{RowKey: store.RowKey{Space: 1, Group: uint16(i % 16), Key: []byte(fmt.Sprintf("%s/%d", name, i))}, Value: filled(100+i*10, uint64(i))}
	}
	return rows
}

// checkAllOrNothing fails if some of a transaction's rows are there and some are not; it returns
// whether they are gone.
func checkAllOrNothing(t *testing.T, s *Store, rows []store.Row) bool {
	t.Helper()
	keys := make([]store.RowKey, len(rows))
	for i := range rows {
		keys[i] = rows[i].RowKey
	}
	values, err := s.Get(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	there := 0
	for _, v := range values {
		if v != nil {
			there++
		}
	}
	if there != 0 && there != len(rows) {
		t.Errorf("%d of %d rows of one transaction survived", there, len(rows))
	}
	return there == 0
}

// TestWholeClusterRestartsUnderLoad: to a server that goes on running, a crash of everything is a
// pause. What was not on disk may be lost, but only whole transactions.
func TestWholeClusterRestartsUnderLoad(t *testing.T) {
	c, url := redundantCluster(t)
	l := startLoad(t, openTest(t, withOption(url, "retry-timeout=3m")))
	l.await(t)
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	restart(t, c)
	l.await(t)
	close(l.stop)
	l.wg.Wait()
	if err := l.failed.Load(); err != nil {
		t.Fatal(*err)
	}
	for w := range l.done {
		v, err := l.s.Meta(t.Context(), counterName(w))
		if err != nil || v == nil {
			t.Fatalf("counter %d: %x (%v)", w, v, err)
		}
		n := binary.BigEndian.Uint64(v)
		if done := l.done[w].Load(); n > done {
			t.Errorf("counter %d is %d after %d transactions", w, n, done)
		}
		checkCounter(t, l.s, w, n)
	}
}

// TestReplicatedLossIsInOrder: with durability=replicated a crash of everything may lose the last
// commits, but never one whose successor survived. So a snapshot's record proves its rows.
func TestReplicatedLossIsInOrder(t *testing.T) {
	c, url := redundantCluster(t)
	s := openTest(t, url)
	var last int
	for n, end := 0, time.Now().Add(6*time.Second); time.Now().Before(end); n++ {
		mustUpdate(t, s, func(tx store.Tx) error { return tx.Put(killRows([]byte(fmt.Sprintf("n%d", n)))) })
		mustUpdate(t, s, func(tx store.Tx) error { return tx.PutMeta(fmt.Sprintf("record%06d", n), []byte("x")) })
		last = n
	}
	if err := c.KillAll(); err != nil {
		t.Fatal(err)
	}
	restart(t, c)
	records, err := s.ScanMeta(t.Context(), "record")
	if err != nil {
		t.Fatal(err)
	}
	for n := range records {
		checkRows(t, s, killRows([]byte(fmt.Sprintf("n%d", n))))
	}
	for n := len(records); n <= last; n++ {
		if v, err := s.Meta(t.Context(), fmt.Sprintf("record%06d", n)); err != nil || v != nil {
			t.Errorf("record %d is there (%v), but an earlier one is lost", n, err)
		}
	}
	t.Logf("%d of %d records survived", len(records), last+1)
}

// counted returns a counter's value.
func counted(t testing.TB, c *prometheus.CounterVec, labels ...string) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.WithLabelValues(labels...).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
