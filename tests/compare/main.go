// Command compare runs the same jobs on one state backend after the other, each on a real Flink cluster with the
// same memory, round by round, and prints throughput, checkpoints, CPU time and memory of all processes.
//
//	make compare                                                      # all workloads, three rounds
//	make compare COMPARE="-workloads nexmark -queries q9,q18 -rounds 5"
//	make compare COMPARE="-backends rocksdb,forst,flinkndb,flinkndb-cluster"
//
// Backends: Flink's hashmap, rocksdb and forst (with asynchronous state), flinkndb with the embedded store, and
// flinkndb-cluster on a MySQL NDB Cluster that is started for it. A backend's jobs of one round share a Flink cluster;
// each round begins with another backend. What fails is reported as such. Every measurement goes to a CSV file at once;
// -resume goes on with it. The report (.md) and charts (.svg) stand beside it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
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
	p, err := parse(os.Args[1:])
	if err != nil {
		return err
	}
	results, err := p.measure(ctx)
	if err != nil {
		return err
	}
	growth, err := p.measureGrowth(ctx)
	if err != nil {
		return err
	}
	text := p.report(results) + p.reportGrowth(growth)
	fmt.Print(text)
	base := strings.TrimSuffix(p.csv, ".csv")
	files := map[string]string{base + ".md": text}
	for name, plot := range p.plots(results) {
		files[base+"-"+name+".svg"] = plot
	}
	for name, plot := range p.growthPlots(growth) {
		files[base+"-"+name+".svg"] = plot
	}
	for file, content := range files {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	return nil
}
