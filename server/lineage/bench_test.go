package lineage_test

import (
	"context"
	"encoding/binary"
	"testing"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/lineage"
	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
	"github.com/flinkndb/flinkndb/server/store/pebble"
)

const (
	benchFrame  = 1024 // entries of a frame
	benchFrames = 100  // frames of an epoch; the rows of an epoch are those of the one before
	benchGroups = 64
)

// BenchmarkWrite writes the same rows epoch after epoch, with a snapshot after each and only the newest
// one kept: what a job with a steady working set does. Reported are entries a second.
func BenchmarkWrite(b *testing.B) { benchmarkStores(b, benchFrames) }

// BenchmarkWriteNew writes new rows all the time.
func BenchmarkWriteNew(b *testing.B) { benchmarkStores(b, 1<<40) }

func benchmarkStores(b *testing.B, frames uint64) {
	stores := map[string]func(b *testing.B) store.Store{
		"memory": func(*testing.B) store.Store { return memory.New() },
		"pebble": func(b *testing.B) store.Store {
			s, err := pebble.Open(b.TempDir(), pebble.Options{Log: zerolog.Nop()})
			if err != nil {
				b.Fatal(err)
			}
			return s
		},
	}
	for name, open := range stores {
		b.Run(name, func(b *testing.B) { benchmarkWrite(b, open(b), frames) })
	}
}

// benchmarkWrite writes frames over and over.
func benchmarkWrite(b *testing.B, st store.Store, frames uint64) {
	ctx := context.Background()
	l, err := lineage.New(ctx, st, lineage.Options{Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	opened, err := l.Open(ctx, lineage.OpenRequest{Token: "t", JobID: "j", GroupCount: benchGroups, Range: lineage.Range{Last: benchGroups - 1}})
	if err != nil {
		b.Fatal(err)
	}
	session, err := l.Attach(ctx, opened.SessionID, "t")
	if err != nil {
		b.Fatal(err)
	}
	state, err := session.RegisterState(ctx, "v", lineage.KindValue)
	if err != nil {
		b.Fatal(err)
	}
	entries := make([]lineage.Entry, benchFrame)
	value := make([]byte, 100)
	seq, epoch, before := uint64(0), uint64(1), ""
	b.ReportAllocs()
	for b.Loop() {
		frame := seq % frames
		for i := range entries {
			key := make([]byte, 24)
			binary.BigEndian.PutUint64(key, (frame*benchFrame+uint64(i))*0x9E3779B97F4A7C15)
			entries[i] = lineage.Entry{State: state, Group: uint16(i % benchGroups), Op: lineage.OpPut, Key: key, Value: value}
		}
		seq++
		if err := session.Write(ctx, seq, epoch, entries); err != nil {
			b.Fatal(err)
		}
		if seq%benchFrames == 0 {
			before = endEpoch(b, l, session, epoch, before)
			epoch++
		}
	}
	b.ReportMetric(float64(b.N*benchFrame)/b.Elapsed().Seconds(), "entries/s")
}

// endEpoch takes a snapshot, and releases the one before.
func endEpoch(b *testing.B, l *lineage.Lineage, session *lineage.Session, epoch uint64, before string) string {
	ctx := context.Background()
	id := uuid.NewString()
	_, commit, err := session.Snapshot(ctx, lineage.SnapshotRequest{ID: id, Epoch: epoch, Kind: lineage.SnapshotCheckpoint})
	if err != nil {
		b.Fatal(err)
	}
	if err := commit.Wait(ctx); err != nil {
		b.Fatal(err)
	}
	if before != "" {
		if _, err := l.Release(ctx, before); err != nil {
			b.Fatal(err)
		}
	}
	return id
}
