// Command compare runs the same job on one state backend after the other, interleaved and repeated, each time
// on a fresh real Flink cluster with the same memory, and prints throughput, checkpoints and CPU time.
//
//	make compare                                    # hashmap, rocksdb, FlinkNDB; three rounds
//	make compare COMPARE="-workload ledger -backends rocksdb,ndb -rounds 5"
//
// The CPU time counts every process: JobManager, TaskManager and state server. Failures of a backend are
// reported as such.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	p := plan{}
	backends, workloads := "hashmap,rocksdb,ndb", "sql,ledger"
	flag.StringVar(&backends, "backends", backends, "backends in the order in which they run")
	flag.StringVar(&workloads, "workloads", workloads, "workloads: sql, ledger")
	flag.IntVar(&p.rounds, "rounds", 3, "how often each backend runs each workload")
	flag.IntVar(&p.sqlRecords, "sql-records", 150_000, "orders of the workload sql")
	flag.IntVar(&p.ledgerRecords, "ledger-records", 3_000_000, "records of the workload ledger")
	flag.IntVar(&p.ledgerKeys, "ledger-keys", 100_000, "keys of the workload ledger")
	flag.StringVar(&p.memory, "memory", "2500m", "taskmanager.memory.process.size")
	flag.StringVar(&p.interval, "interval", "5 s", "checkpoint interval")
	flag.StringVar(&p.home, "flink", ".cache/flink/2.3.0/pyflink", "Flink distribution")
	flag.StringVar(&p.csv, "csv", "build/compare.csv", "file for all measurements")
	flag.Parse()
	p.backends, p.workloads = strings.Split(backends, ","), strings.Split(workloads, ",")
	for _, b := range p.backends {
		if !slices.Contains([]string{"hashmap", "rocksdb", "ndb"}, b) {
			return fmt.Errorf("-backends: found %q, allowed are hashmap, rocksdb and ndb", b)
		}
	}
	for _, w := range p.workloads {
		if w != "sql" && w != "ledger" {
			return fmt.Errorf("-workloads: found %q, allowed are sql and ledger", w)
		}
	}
	if p.rounds < 1 {
		return errors.New("-rounds: at least 1")
	}
	results, err := p.measure(ctx)
	if err != nil {
		return err
	}
	if err := writeCSV(p.csv, results); err != nil {
		return err
	}
	fmt.Print(report(p, results))
	return nil
}
