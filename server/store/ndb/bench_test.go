package ndb

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
)

// benchmarkURLVariable names a store to run the benchmarks on, as in
//
//	FLINKNDB_BENCH_URL='mysql://root@127.0.0.1:3306/bench?engine=ndb' go test -bench . -cpuprofile cpu.out ./server/store/ndb
const benchmarkURLVariable = "FLINKNDB_BENCH_URL"

func benchmarkStore(b *testing.B) *Store {
	url := os.Getenv(benchmarkURLVariable)
	if url == "" {
		b.Skipf("set %s to the URL of a store", benchmarkURLVariable)
	}
	return openTest(b, url)
}

// BenchmarkUpdate reads and writes 1000 rows in a transaction, as a server does with a frame.
func BenchmarkUpdate(b *testing.B) {
	s := benchmarkStore(b)
	var spaces atomic.Uint64
	b.RunParallel(func(pb *testing.PB) {
		rows, keys := benchmarkRows(spaces.Add(1), 1000)
		for pb.Next() {
			_, err := s.Update(b.Context(), func(tx store.Tx) error {
				if _, err := tx.Get(keys); err != nil {
					return err
				}
				return tx.Put(rows)
			})
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkGet(b *testing.B) {
	s := benchmarkStore(b)
	rows, keys := benchmarkRows(0, 1000)
	if _, err := s.Update(b.Context(), func(tx store.Tx) error { return tx.Put(rows) }); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		if _, err := s.Get(b.Context(), keys); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "rows/s")
}

func benchmarkRows(space uint64, n int) ([]store.Row, []store.RowKey) {
	rows := make([]store.Row, n)
	keys := make([]store.RowKey, n)
	for i := range rows {
		rows[i] = store.Row{RowKey: store.RowKey{Space: 1<<62 + space, Group: uint16(i % 16), Key: []byte(fmt.Sprintf("key-%016d", i))}, Value: filled(100, uint64(i))}
		keys[i] = rows[i].RowKey
	}
	return rows, keys
}
