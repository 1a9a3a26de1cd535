package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
)

// report is the result in Markdown: for each workload the rates against RocksDB's, and what else was measured.
func (p *plan) report(results []result) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d cores; one TaskManager of %s, parallelism %d, checkpoint every %s; %d interleaved rounds, medians (least to most). A job starts when the state of the one before is removed.\n",
		processor(), runtime.NumCPU(), p.memory, p.parallelism, p.interval, p.rounds)
	for _, workload := range p.workloads {
		if workload == "growth" {
			continue
		}
		p.reportRates(&out, workload, results)
		p.reportCosts(&out, workload, results)
	}
	return out.String()
}

// reportRates is a table of records a second, and of their ratios to RocksDB's.
func (p *plan) reportRates(out *strings.Builder, workload string, results []result) {
	fmt.Fprintf(out, "\n## %s: records/s, and how many times rocksdb's\n\n| case | %s |\n|---|%s\n", workload, strings.Join(p.backends, " | "), strings.Repeat("---|", len(p.backends)))
	ratios := make(map[string][]float64)
	for _, c := range p.cases() {
		if c.workload != workload {
			continue
		}
		fmt.Fprintf(out, "| %s |", c.name)
		reference := median(rates(results, c, "rocksdb"))
		for _, backend := range p.backends {
			of := rates(results, c, backend)
			if len(of) == 0 {
				out.WriteString(" failed |")
				continue
			}
			fmt.Fprintf(out, " %.0f (%.0f to %.0f)", median(of), slices.Min(of), slices.Max(of))
			if reference > 0 {
				ratio := median(of) / reference
				ratios[backend] = append(ratios[backend], ratio)
				fmt.Fprintf(out, ", **%.2f**", ratio)
			}
			out.WriteString(" |")
		}
		if !sameResult(results, c) {
			out.WriteString(" results differ")
		}
		out.WriteString("\n")
	}
	out.WriteString("| geometric mean |")
	for _, backend := range p.backends {
		fmt.Fprintf(out, " **%.2f** |", geometricMean(ratios[backend]))
	}
	out.WriteString("\n")
}

// reportCosts is a table of checkpoints, CPU time (the removal of a job's state included) and memory.
func (p *plan) reportCosts(out *strings.Builder, workload string, results []result) {
	out.WriteString("\n| case | backend | checkpoint | written by it | state | removal of it | CPU of Flink, server, database | memory of all processes, peak so far | failures |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range p.cases() {
		if c.workload != workload {
			continue
		}
		for _, backend := range p.backends {
			var millis, written, state, memory []int64
			var cleanUp, flink, server, database []float64
			good, failures := of(results, c, backend)
			if len(good) == 0 {
				fmt.Fprintf(out, "| %s | %s | | | | | | | %d |\n", c.name, backend, failures)
				continue
			}
			for _, r := range good {
				millis, written, state = append(millis, r.checkpointMillis), append(written, r.checkpointBytes), append(state, r.stateBytes)
				cleanUp, memory = append(cleanUp, r.cleanUpSeconds), append(memory, r.memoryBytes)
				flink, server, database = append(flink, r.cpu.flink), append(server, r.cpu.server), append(database, r.cpu.database)
			}
			fmt.Fprintf(out, "| %s | %s | %d ms | %.1f MB | %.1f MB | %.1f s | %.0f + %.0f + %.0f s | %.1f GB | %d |\n", c.name, backend, median(millis),
				float64(median(written))/1e6, float64(median(state))/1e6, median(cleanUp), median(flink), median(server), median(database), float64(median(memory))/1e9, failures)
		}
	}
}

func of(results []result, c testcase, backend string) (good []result, failures int) {
	for _, r := range results {
		if r.workload != c.workload || r.name != c.name || r.backend != backend {
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

func rates(results []result, c testcase, backend string) (rates []float64) {
	good, _ := of(results, c, backend)
	for _, r := range good {
		rates = append(rates, float64(r.records)/r.seconds)
	}
	return rates
}

// ambiguous queries may give different results: q12 depends on the machine's clock, and the others choose between
// bids of the same price and time by the order in which they arrive.
var ambiguous = []string{"q9", "q12", "q18", "q19"}

// sameResult says whether every run of a job came to the same result. The number of changes on the way there may
// differ.
func sameResult(results []result, c testcase) bool {
	digests := make(map[string]bool)
	for _, r := range results {
		if r.workload == c.workload && r.name == c.name && r.failure == "" {
			_, digest, _ := strings.Cut(r.digest, "/")
			digests[digest] = true
		}
	}
	return len(digests) <= 1 || slices.Contains(ambiguous, c.name)
}

// plots are charts by file name: for each workload how many times RocksDB's rate each backend reaches.
func (p *plan) plots(results []result) map[string]string {
	plots := make(map[string]string)
	for _, workload := range p.workloads {
		var names []string
		all := make([]series, len(p.backends))
		for _, c := range p.cases() {
			reference := median(rates(results, c, "rocksdb"))
			if c.workload != workload || reference == 0 {
				continue
			}
			names = append(names, c.name)
			for i, backend := range p.backends {
				all[i].name = backend
				ratio := math.NaN()
				if of := rates(results, c, backend); len(of) > 0 {
					ratio = median(of) / reference
				}
				all[i].values = append(all[i].values, ratio)
			}
		}
		if len(names) > 0 {
			plots[workload] = barChart(workload+": records a second, as a multiple of rocksdb's", names, all, 1)
		}
	}
	return plots
}

func geometricMean(numbers []float64) float64 {
	sum := 0.0
	for _, number := range numbers {
		sum += math.Log(number)
	}
	return math.Exp(sum / float64(max(1, len(numbers))))
}

// processor is the name of the machine's processor, as Linux tells it.
func processor() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(raw)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
