package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// Options say what to measure.
type Options struct {
	Rows        int
	Batches     []int
	Concurrency []int
	Operations  []string
	KeyBytes    int
	ValueBytes  int
	KeyGroups   int
	Rounds      int
	MaxTime     time.Duration
}

func (o *Options) validate() error {
	for _, n := range []struct {
		flag       string
		value      int
		least, top int
	}{{"rows", o.Rows, 1, 1 << 30}, {"key-bytes", o.KeyBytes, 8, 1 << 16}, {"value-bytes", o.ValueBytes, 0, 1 << 20},
		{"key-groups", o.KeyGroups, 1, 32768}, {"rounds", o.Rounds, 1, 100}} {
		if n.value < n.least || n.value > n.top {
			return fmt.Errorf("--%s: %d; allowed are %d to %d", n.flag, n.value, n.least, n.top)
		}
	}
	for _, b := range o.Batches {
		if b < 1 || b > o.Rows {
			return fmt.Errorf("--batch: %d; allowed are 1 to --rows, %d", b, o.Rows)
		}
	}
	for _, c := range o.Concurrency {
		if c < 1 || c > 256 {
			return fmt.Errorf("--concurrency: %d; allowed are 1 to 256", c)
		}
	}
	for _, name := range o.Operations {
		if !slices.Contains(operationNames(), name) {
			return fmt.Errorf("--operations: %q; allowed are %s", name, strings.Join(operationNames(), ", "))
		}
	}
	return nil
}

// benchSpace is the row space of the benchmark's rows: far from those that a server hands out.
const benchSpace = 1 << 62

// target is what is measured: a store, or raw SQL.
type target interface {
	get(ctx context.Context, keys []store.RowKey) (int, error)
	put(ctx context.Context, rows []store.Row) error
	// update reads rows and writes them again in one transaction.
	update(ctx context.Context, rows []store.Row) error
	// scan reads one page of a key group and returns its rows and the key after which to go on; nil = from the start.
	scan(ctx context.Context, group uint16, after []byte, rows int) (int, []byte, error)
	// snapshot writes rows and, in a later transaction, a record of the given size, and waits
	// until both are durable.
	snapshot(ctx context.Context, rows []store.Row, record []byte, name string) error
}

func operationNames() []string { return []string{"put", "get", "update", "scan", "snapshot"} }

// data are the rows of the benchmark in random order.
type data struct {
	rows   []store.Row
	groups int
}

func makeData(o Options) *data {
	r := rand.New(rand.NewPCG(1, 2))
	d := &data{rows: make([]store.Row, o.Rows), groups: o.KeyGroups}
	for i := range d.rows {
		key := make([]byte, o.KeyBytes)
		for j := range key {
			key[j] = byte('a' + r.IntN(26))
		}
		binary.BigEndian.PutUint64(key[len(key)-8:], uint64(i))
		value := make([]byte, o.ValueBytes)
		for j := range value {
			value[j] = byte(r.IntN(256))
		}
		d.rows[i] = store.Row{RowKey: store.RowKey{Space: benchSpace, Group: uint16(i % o.KeyGroups), Key: key}, Value: value}
	}
	r.Shuffle(len(d.rows), func(i, j int) { d.rows[i], d.rows[j] = d.rows[j], d.rows[i] })
	return d
}

// Run measures a store and prints a table. url is the store's; if it is a MySQL store, raw SQL is
// measured beside it.
func Run(ctx context.Context, s store.Store, url string, o Options, out io.Writer) error {
	d := makeData(o)
	targets := []target{&storeTarget{s}}
	if strings.HasPrefix(url, "mysql:") {
		raw, err := openRaw(ctx, s, slices.Max(o.Concurrency))
		if err != nil {
			return err
		}
		defer raw.close(context.WithoutCancel(ctx))
		targets = append(targets, raw)
	}
	defer func() {
		if err := s.DropSpace(context.WithoutCancel(ctx), benchSpace); err != nil {
			fmt.Fprintln(out, "removing the benchmark's rows:", err)
		}
	}()
	fmt.Fprintf(out, "%s\n%d rows, keys of %d bytes, values of %d bytes, %d key groups; median of %d rounds\n\n",
		s.Name(), o.Rows, o.KeyBytes, o.ValueBytes, o.KeyGroups, o.Rounds)
	for _, t := range targets {
		if err := fillWith(ctx, t, d); err != nil {
			return fmt.Errorf("writing the rows: %w", err)
		}
	}
	printHeader(out, len(targets) > 1)
	for _, op := range o.Operations {
		for _, concurrency := range o.Concurrency {
			for _, batch := range o.Batches {
				results, err := measure(ctx, targets, op, d, batch, concurrency, o)
				if err != nil {
					return fmt.Errorf("%s, %d rows a call, %d calls at a time: %w", op, batch, concurrency, err)
				}
				printLine(out, op, batch, concurrency, results)
			}
		}
	}
	return nil
}

func fillWith(ctx context.Context, t target, d *data) error {
	for start := 0; start < len(d.rows); start += 1000 {
		if err := t.put(ctx, d.rows[start:min(start+1000, len(d.rows))]); err != nil {
			return err
		}
	}
	return nil
}

// result is one measurement of one target.
type result struct {
	rate     float64 // rows per second
	p50, p99 time.Duration
}

// measure runs the rounds of all targets in turn and returns the median of each.
func measure(ctx context.Context, targets []target, op string, d *data, batch, concurrency int, o Options) ([]result, error) {
	all := make([][]result, len(targets))
	for round := range o.Rounds {
		for i := range targets {
			n := (i + round) % len(targets) // nobody is always first
			r, err := runRound(ctx, targets[n], op, d, batch, concurrency, o.MaxTime)
			if err != nil {
				return nil, err
			}
			all[n] = append(all[n], r)
		}
	}
	medians := make([]result, len(targets))
	for i, rs := range all {
		slices.SortFunc(rs, func(a, b result) int { return int(a.rate - b.rate) })
		medians[i] = rs[len(rs)/2]
	}
	return medians, nil
}

// runRound moves all rows once, in calls of batch rows.
func runRound(ctx context.Context, t target, op string, d *data, batch, concurrency int, maxTime time.Duration) (result, error) {
	calls := (len(d.rows) + batch - 1) / batch
	var next, rows atomic.Int64
	latencies := make([][]time.Duration, concurrency)
	errs := make([]error, concurrency)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range concurrency {
		wg.Go(func() {
			cursor := scanCursor{group: w}
			for time.Since(began) < maxTime {
				call := int(next.Add(1)) - 1
				if call >= calls {
					return
				}
				part := d.rows[call*batch : min((call+1)*batch, len(d.rows))]
				start := time.Now()
				n, err := cursor.call(ctx, t, op, d, part)
				if err != nil {
					errs[w] = err
					return
				}
				latencies[w] = append(latencies[w], time.Since(start))
				rows.Add(int64(n))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return result{}, err
		}
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	return result{float64(rows.Load()) / elapsed.Seconds(), sorted[len(sorted)/2], sorted[len(sorted)*99/100]}, nil
}

// scanCursor is where a worker's scan goes on.
type scanCursor struct {
	group int
	after []byte
}

// call does one operation on a batch of rows and returns how many it moved.
func (sc *scanCursor) call(ctx context.Context, t target, op string, d *data, part []store.Row) (int, error) {
	switch op {
	case "get":
		keys := make([]store.RowKey, len(part))
		for i := range part {
			keys[i] = part[i].RowKey
		}
		n, err := t.get(ctx, keys)
		if err == nil && n != len(part) {
			err = fmt.Errorf("%d rows of %d are missing", len(part)-n, len(part))
		}
		return n, err
	case "put":
		return len(part), t.put(ctx, part)
	case "update":
		return len(part), t.update(ctx, part)
	case "snapshot":
		return len(part), t.snapshot(ctx, part, make([]byte, 1000), fmt.Sprintf("bench/%d", sc.group))
	}
	n, after, err := t.scan(ctx, uint16(sc.group%d.groups), sc.after, len(part))
	if sc.after = after; after == nil {
		sc.group++
	}
	return n, err
}

func printHeader(out io.Writer, raw bool) {
	fmt.Fprintf(out, "%-9s %6s %6s | %11s %10s %10s", "operation", "batch", "calls", "rows/s", "p50", "p99")
	if raw {
		fmt.Fprintf(out, " | %11s %10s %10s | %s", "raw rows/s", "p50", "p99", "store/raw")
	}
	fmt.Fprintln(out)
}

func printLine(out io.Writer, op string, batch, concurrency int, rs []result) {
	fmt.Fprintf(out, "%-9s %6d %6d | %11.0f %10s %10s", op, batch, concurrency, rs[0].rate, short(rs[0].p50), short(rs[0].p99))
	if len(rs) > 1 {
		fmt.Fprintf(out, " | %11.0f %10s %10s | %5.0f %%", rs[1].rate, short(rs[1].p50), short(rs[1].p99), 100*rs[0].rate/rs[1].rate)
	}
	fmt.Fprintln(out)
}

func short(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }
