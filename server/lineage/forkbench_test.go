package lineage_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/pebble"
)

// forkBytes is the size of the state that is forked.
var forkBytes = flag.Int64("fork-bytes", 32<<20, "bytes of values in the state that BenchmarkFork forks")

const (
	forkOpens      = 21
	forkValueBytes = 1000
	forkEntryBytes = 16 + forkValueBytes
)

// BenchmarkFork forks a state on the embedded store that its job goes on with. Reported are the time to open the fork
// and read its first row, the bytes in the store after the fork has changed one row in a hundred, for each byte
// changed, and how fast it is flattened without a limit. Building the state takes long: use -benchtime 1x.
func BenchmarkFork(b *testing.B) {
	bench := newForkBench(b)
	defer func() { bench.close() }()
	bench.build()
	bench.forkOften()
	bench.changeSome()
	bench.flatten()
	b.ReportMetric(0, "ns/op") // of no meaning here
}

// forkBench is the store with the state and its server.
type forkBench struct {
	b     *testing.B
	dir   string
	rows  int64
	store store.Store
	l     *lineage.Lineage
	last  *lineage.Session // the newest fork
}

func newForkBench(b *testing.B) *forkBench {
	bench := &forkBench{b: b, dir: b.TempDir(), rows: *forkBytes / forkValueBytes}
	bench.open()
	return bench
}

func (f *forkBench) must(err error) {
	f.b.Helper()
	if err != nil {
		f.b.Fatal(err)
	}
}

// open opens the store, which brings what its log holds into tables.
func (f *forkBench) open() {
	var err error
	f.store, err = pebble.Open(f.dir, pebble.Options{Log: zerolog.Nop()})
	f.must(err)
	f.l, err = lineage.New(f.b.Context(), f.store, lineage.Options{
		Log: zerolog.Nop(), Lease: time.Hour, SweepInterval: 100 * time.Millisecond, FlattenRate: 1 << 40,
	})
	f.must(err)
}

func (f *forkBench) close() { f.must(f.store.Close()) }

// settledBytes is what the store takes once its log is in tables and nothing is being compacted.
func (f *forkBench) settledBytes() uint64 {
	f.close()
	f.open()
	size, quiet := uint64(0), 0
	for quiet < 20 {
		now, err := f.store.Bytes(f.b.Context())
		f.must(err)
		quiet++
		if now != size {
			size, quiet = now, 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return size
}

// session opens a session of a job, or finds it again.
func (f *forkBench) session(job string, bases ...lineage.Base) *lineage.Session {
	ctx := f.b.Context()
	opened, err := f.l.Open(ctx, lineage.OpenRequest{Token: job, JobID: job, GroupCount: benchGroups, Range: lineage.Range{Last: benchGroups - 1}, Bases: bases})
	f.must(err)
	session, err := f.l.Attach(ctx, opened.SessionID, job)
	f.must(err)
	_, err = session.RegisterState(ctx, "v", lineage.KindValue)
	f.must(err)
	return session
}

// write writes every n-th row.
func (f *forkBench) write(session *lineage.Session, n int64) (written int64) {
	random := rand.NewChaCha8([32]byte{})
	seq := session.AppliedSeq()
	for row := int64(0); row < f.rows; {
		entries := make([]lineage.Entry, 0, benchFrame)
		for ; row < f.rows && len(entries) < benchFrame; row += n {
			value := make([]byte, forkValueBytes)
			if _, err := random.Read(value); err != nil {
				f.b.Fatal(err)
			}
			entries = append(entries, lineage.Entry{Group: uint16(row % benchGroups), Op: lineage.OpPut, Key: benchKey(row), Value: value})
		}
		seq++
		written += int64(len(entries))
		f.must(session.Write(f.b.Context(), seq, 1, entries))
	}
	for {
		durable, news, err := session.Durable()
		f.must(err)
		if durable == seq {
			return written
		}
		<-news
	}
}

func benchKey(row int64) []byte {
	key := make([]byte, forkEntryBytes-forkValueBytes)
	binary.BigEndian.PutUint64(key, uint64(row)*0x9E3779B97F4A7C15)
	return key
}

// build writes the state and takes the snapshot that is forked; the session stays.
func (f *forkBench) build() {
	session := f.session("parent")
	f.write(session, 1)
	_, commit, err := session.Snapshot(f.b.Context(), lineage.SnapshotRequest{ID: "base", Epoch: 1, Kind: lineage.SnapshotSavepoint})
	f.must(err)
	f.must(commit.Wait(f.b.Context()))
	f.b.ReportMetric(float64(f.settledBytes())/1e6, "state-MB")
}

// forkOften starts job after job, of which the last one stays.
func (f *forkBench) forkOften() {
	took := make([]time.Duration, forkOpens)
	for i := range took {
		began := time.Now()
		f.fork(fmt.Sprint("fork-", i))
		took[i] = time.Since(began)
		if i < forkOpens-1 {
			f.must(f.last.Close(f.b.Context()))
		}
	}
	slices.Sort(took)
	f.b.ReportMetric(took[forkOpens/2].Seconds()*1e3, "open-ms")
	f.b.ReportMetric(took[forkOpens-1].Seconds()*1e3, "slowest-open-ms")
}

// fork starts a job from the snapshot and reads one row.
func (f *forkBench) fork(job string) {
	f.last = f.session(job, lineage.Base{SnapshotID: "base", Range: lineage.Range{Last: benchGroups - 1}})
	values, err := f.last.Read(f.b.Context(), []lineage.Entry{{Key: benchKey(0)}})
	f.must(err)
	if len(values[0]) != forkValueBytes {
		f.b.Fatal("the fork does not see the row")
	}
}

// changeSome has the fork change one row in a hundred.
func (f *forkBench) changeSome() {
	before := f.settledBytes()
	f.last = f.session(fmt.Sprint("fork-", forkOpens-1))
	changed := f.write(f.last, 100)
	after := f.settledBytes()
	f.b.ReportMetric(float64(after-before)/float64(changed*forkEntryBytes), "added-B/changed-B")
	f.b.ReportMetric(float64(after-before)/1e6, "added-MB")
}

// flatten makes the fork independent, as fast as the server can.
func (f *forkBench) flatten() {
	f.session(fmt.Sprint("fork-", forkOpens-1))
	ctx, stop := context.WithCancel(f.b.Context())
	var running sync.WaitGroup
	began := time.Now()
	running.Go(func() { f.l.Run(ctx) })
	for f.l.Totals().LayeredGroups > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(began)
	stop()
	running.Wait()
	totals := f.l.Totals()
	f.b.ReportMetric(float64(totals.FlattenedBytes)/1e6/took.Seconds(), "flattened-MB/s")
	f.b.ReportMetric(float64(totals.FlattenedRows)/float64(f.rows), "flattened/row")
}
