package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

func writeCSV(file string, results []result) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("-csv: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	rows := [][]string{{"workload", "backend", "round", "records", "seconds", "checkpoints", "checkpoint_ms", "checkpoint_bytes", "cpu_seconds", "failure"}}
	for _, r := range results {
		rows = append(rows, []string{r.workload, r.backend, fmt.Sprint(r.round), fmt.Sprint(r.records), fmt.Sprintf("%.2f", r.seconds), fmt.Sprint(r.checkpoints),
			fmt.Sprint(r.checkpointMillis), fmt.Sprint(r.checkpointBytes), fmt.Sprintf("%.2f", r.cpuSeconds), r.failure})
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("-csv: %w", err)
	}
	return nil
}

// report is a table in Markdown: medians, and the spread of the time.
func report(p plan, results []result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d cores, TaskManager %s with 2 slots, checkpoint every %s, %d rounds interleaved, medians\n", runtime.NumCPU(), p.memory, p.interval, p.rounds)
	for _, workload := range p.workloads {
		fmt.Fprintf(&out, "\n%s\n\n| backend | records/s | of rocksdb | time (s): median, least to most | checkpoint | written by it | CPU (s) | failures |\n|---|---|---|---|---|---|---|---|\n", workload)
		reference := medianRate(results, workload, "rocksdb")
		for _, backend := range p.backends {
			out.WriteString(row(results, workload, backend, reference))
		}
	}
	return out.String()
}

func of(results []result, workload, backend string) (good []result, failures int) {
	for _, r := range results {
		if r.workload != workload || r.backend != backend {
			continue
		}
		if r.failure != "" {
			failures++
			continue
		}
		good = append(good, r)
	}
	return good, failures
}

func medianRate(results []result, workload, backend string) float64 {
	var rates []float64
	good, _ := of(results, workload, backend)
	for _, r := range good {
		rates = append(rates, float64(r.records)/r.seconds)
	}
	return median(rates)
}

func row(results []result, workload, backend string, reference float64) string {
	good, failures := of(results, workload, backend)
	if len(good) == 0 {
		return fmt.Sprintf("| %s | – | – | – | – | – | – | %d |\n", backend, failures)
	}
	var seconds, cpu []float64
	var millis, written []int64
	for _, r := range good {
		seconds, cpu = append(seconds, r.seconds), append(cpu, r.cpuSeconds)
		millis, written = append(millis, r.checkpointMillis), append(written, r.checkpointBytes)
	}
	ratio := "–"
	rate := medianRate(results, workload, backend)
	if reference > 0 {
		ratio = fmt.Sprintf("%.2f", rate/reference)
	}
	return fmt.Sprintf("| %s | %.0f | %s | %.1f, %.1f to %.1f | %d ms | %.1f MB | %.0f | %d |\n", backend, rate, ratio,
		median(seconds), slices.Min(seconds), slices.Max(seconds), median(millis), float64(median(written))/1e6, median(cpu), failures)
}
