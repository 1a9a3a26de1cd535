package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/flinkndb/flinkndb/server/store/memory"
)

// Enough for several pages of a reader.
const (
	readerGroups = 3
	readerRows   = 1500 // in each key group
)

// readerJob is a session that overwrites all its rows in each epoch.
type readerJob struct {
	session *Session
	epoch   uint64
	seq     uint64
}

func newReaderJob(t *testing.T, l *Lineage) *readerJob {
	t.Helper()
	result, err := l.Open(t.Context(), OpenRequest{Token: "writer", JobID: "job", GroupCount: readerGroups, Range: Range{0, readerGroups - 1}})
	if err != nil {
		t.Fatal(err)
	}
	session, err := l.Attach(t.Context(), result.SessionID, "writer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.RegisterState(t.Context(), "value", KindValue); err != nil {
		t.Fatal(err)
	}
	return &readerJob{session: session, epoch: 1}
}

func (j *readerJob) write(ctx context.Context, entries []Entry) error {
	j.seq++
	return j.session.Write(ctx, j.seq, j.epoch, entries)
}

// overwrite gives each row the number of the epoch as its value.
func (j *readerJob) overwrite(ctx context.Context) error {
	for group := range uint16(readerGroups) {
		entries := make([]Entry, readerRows)
		for i := range entries {
			entries[i] = Entry{Group: group, Op: OpPut, Key: fmt.Appendf(nil, "%06d", i), Value: fmt.Appendf(nil, "%d", j.epoch)}
		}
		if err := j.write(ctx, entries); err != nil {
			return err
		}
	}
	return nil
}

// snapshot ends the epoch.
func (j *readerJob) snapshot(ctx context.Context) (string, error) {
	id := fmt.Sprintf("s%d", j.epoch)
	_, commit, err := j.session.Snapshot(ctx, SnapshotRequest{ID: id, Epoch: j.epoch, Kind: SnapshotSavepoint})
	if err != nil {
		return "", err
	}
	j.epoch++
	return id, commit.Wait(ctx)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// readAll reads what a reader still has, and demands that all values are those of one epoch.
func readAll(ctx context.Context, r *Reader, value string) (int, error) {
	n := 0
	for {
		rows, err := r.Next(ctx)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		for _, row := range rows {
			if string(row.Value) != value {
				return n, fmt.Errorf("row %s of group %d has the value of epoch %s, expected %s", row.Key, row.Group, row.Value, value)
			}
		}
		n += len(rows)
	}
}

// TestReadersSeeWholeSnapshots reads snapshots while they are released, all rows are overwritten and the
// sweeper runs: a reader gets all rows as they were, or an error, never less.
func TestReadersSeeWholeSnapshots(t *testing.T) {
	ctx := t.Context()
	l := openLineage(t, memory.New(), Options{})
	job := newReaderJob(t, l)
	sweeping, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for sweeping.Err() == nil {
			if _, err := l.Collect(sweeping, false); err != nil && sweeping.Err() == nil {
				t.Error(err)
			}
		}
	})
	whole := 0
	for round := 0; round < 20 || whole == 0 && round < 1000; round++ { // on a busy machine no reader may be in time at first
		must(t, job.overwrite(ctx))
		value := fmt.Sprint(job.epoch)
		id, err := job.snapshot(ctx)
		must(t, err)
		var readers sync.WaitGroup
		results := make(chan error, 3)
		for range cap(results) {
			readers.Go(func() { results <- readWhole(ctx, l, id, value) })
		}
		readers.Go(func() {
			if _, err := l.Release(ctx, id); err != nil {
				t.Error(err)
			}
		})
		must(t, job.overwrite(ctx))
		readers.Wait()
		close(results)
		for err := range results {
			switch {
			case err == nil:
				whole++
			case !errors.Is(err, ErrSnapshotNotFound):
				t.Error(err)
			}
		}
	}
	stop()
	running.Wait()
	if whole == 0 {
		t.Error("no reader was in time")
	}
	_, err := l.Collect(ctx, true)
	must(t, err)
	if left := l.Totals().Snapshots; left != 0 {
		t.Errorf("%d snapshots or pins are left", left)
	}
}

func readWhole(ctx context.Context, l *Lineage, id, value string) error {
	reader, err := l.OpenReader(ctx, ReadRequest{SnapshotID: id})
	if err != nil {
		return err
	}
	n, err := readAll(ctx, reader, value)
	if err == nil && n != readerGroups*readerRows {
		err = fmt.Errorf("snapshot %s: a reader found %d rows, and no error", id, n)
	}
	return errors.Join(err, reader.Close(ctx))
}

// TestReaderAtAnotherServer has the snapshot released at the server that writes, while another one reads
// it: the writer must learn of the reader's pin before it forgets what the snapshot sees.
func TestReaderAtAnotherServer(t *testing.T) {
	ctx := t.Context()
	st := memory.New()
	writer, other := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	job := newReaderJob(t, writer)
	must(t, job.overwrite(ctx))
	id, err := job.snapshot(ctx)
	must(t, err)
	reader, err := other.OpenReader(ctx, ReadRequest{SnapshotID: id})
	must(t, err)
	_, err = writer.Release(ctx, id)
	must(t, err)
	must(t, job.overwrite(ctx))
	n, err := readAll(ctx, reader, "1")
	must(t, err)
	if n != readerGroups*readerRows {
		t.Fatalf("found %d rows", n)
	}
	must(t, reader.Close(ctx))
}

// TestForkAtAnotherServer is the same for a job that was started from the snapshot at another server.
func TestForkAtAnotherServer(t *testing.T) {
	ctx := t.Context()
	st := memory.New()
	writer, other := openLineage(t, st, Options{}), openLineage(t, st, Options{})
	job := newReaderJob(t, writer)
	must(t, job.overwrite(ctx))
	id, err := job.snapshot(ctx)
	must(t, err)
	groups := Range{0, readerGroups - 1}
	result, err := other.Open(ctx, OpenRequest{
		Token: "fork", JobID: "another job", GroupCount: readerGroups, Range: groups, Bases: []Base{{id, groups}},
	})
	must(t, err)
	fork, err := other.Attach(ctx, result.SessionID, "fork")
	must(t, err)
	_, err = fork.RegisterState(ctx, "value", KindValue)
	must(t, err)
	_, err = writer.Release(ctx, id)
	must(t, err)
	must(t, job.overwrite(ctx))
	values, err := fork.Read(ctx, []Entry{{Key: []byte("000000")}})
	must(t, err)
	if string(values[0]) != "1" {
		t.Fatalf("the fork reads %q, expected what the snapshot had", values[0])
	}
}

// TestGroupsOnly asks which key groups have rows, some of which have only deleted ones.
func TestGroupsOnly(t *testing.T) {
	ctx := t.Context()
	l := openLineage(t, memory.New(), Options{})
	job := newReaderJob(t, l)
	_, err := job.session.RegisterState(ctx, "timers", KindTimer)
	must(t, err)
	must(t, job.write(ctx, []Entry{
		{State: 0, Group: 0, Op: OpPut, Key: []byte("deleted"), Value: []byte("v")},
		{State: 1, Group: 1, Op: OpPut, Key: []byte("timer")},
		{State: 1, Group: 2, Op: OpPut, Key: []byte("deleted timer")},
		{State: 0, Group: 2, Op: OpPut, Key: []byte("a"), Value: []byte("v")},
		{State: 0, Group: 2, Op: OpPut, Key: []byte("b"), Value: []byte("v")},
	}))
	_, err = job.snapshot(ctx)
	must(t, err)
	must(t, job.write(ctx, []Entry{
		{State: 0, Group: 0, Op: OpDelete, Key: []byte("deleted")},
		{State: 1, Group: 2, Op: OpDelete, Key: []byte("deleted timer")},
	}))
	id, err := job.snapshot(ctx)
	must(t, err)
	for _, c := range []struct {
		id     string
		groups *Range
		want   []uint16
	}{
		{"s1", nil, []uint16{0, 1, 2}},
		{id, nil, []uint16{1, 2}},
		{id, &Range{0, 0}, nil},
		{id, &Range{0, 1}, []uint16{1}},
	} {
		reader, err := l.OpenReader(ctx, ReadRequest{SnapshotID: c.id, Range: c.groups, GroupsOnly: true})
		must(t, err)
		var found []uint16
		for {
			rows, err := reader.Next(ctx)
			must(t, err)
			if len(rows) == 0 {
				break
			}
			for _, row := range rows {
				found = append(found, row.Group)
			}
		}
		must(t, reader.Close(ctx))
		if !slices.Equal(found, c.want) {
			t.Errorf("snapshot %s, range %v: found rows in groups %v, expected %v", c.id, c.groups, found, c.want)
		}
	}
	reader, err := l.OpenReader(ctx, ReadRequest{SnapshotID: id, GroupsOnly: true})
	must(t, err)
	_, err = l.Release(ctx, id)
	must(t, err)
	if _, err := reader.Next(ctx); !errors.Is(err, ErrSnapshotNotFound) {
		t.Errorf("groups of a released snapshot: %v", err)
	}
}
