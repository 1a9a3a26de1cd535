package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// plan is what to measure, and how.
type plan struct {
	backends  []string
	workloads []string
	queries   []string
	rounds    int

	events, orders, records, keys int
	sizes                         []int64 // megabytes of state
	settle                        time.Duration
	valueBytes, updates           int
	parallelism                   int
	memory, interval              string
	home, csv                     string
	resume                        bool
}

// testcase is one job.
type testcase struct {
	workload, name string
	entry          string
	args           []string
	records        int
}

const (
	embedded  = "flinkndb"
	onCluster = "flinkndb-cluster"
)

var (
	allBackends  = []string{"hashmap", "rocksdb", "forst", embedded, onCluster}
	allWorkloads = []string{"nexmark", "sql", "ledger", "cache", "growth"}
	allQueries   = []string{"q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q15", "q16", "q17", "q18", "q19", "q20"}
)

func parse(args []string) (*plan, error) {
	p := &plan{}
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	list(flags, &p.backends, "backends", []string{"hashmap", "rocksdb", embedded}, allBackends)
	list(flags, &p.workloads, "workloads", []string{"nexmark", "ledger"}, allWorkloads)
	list(flags, &p.queries, "queries", allQueries, allQueries)
	flags.IntVar(&p.rounds, "rounds", 3, "how often each backend runs everything")
	flags.IntVar(&p.parallelism, "parallelism", 1, "parallelism of the jobs")
	flags.IntVar(&p.events, "events", 2_000_000, "events of each Nexmark query")
	flags.IntVar(&p.orders, "orders", 150_000, "orders of the workload sql")
	flags.IntVar(&p.records, "records", 3_000_000, "records of the workload ledger")
	flags.IntVar(&p.keys, "keys", 100_000, "keys of the workload ledger")
	p.sizes = []int64{100, 1_000, 5_000}
	flags.Func("sizes", "comma-separated megabytes of state of the workload growth (default 100,1000,5000)", p.parseSizes)
	flags.IntVar(&p.valueBytes, "value-bytes", 1_000, "size of the values of the workloads cache and growth")
	flags.IntVar(&p.updates, "updates", 5_000, "updates a second of the workload growth")
	flags.DurationVar(&p.settle, "settle", time.Minute, "how long the workload growth updates a filled state before it measures: stores still sort what was filled in")
	flags.StringVar(&p.memory, "memory", "4g", "taskmanager.memory.process.size")
	flags.StringVar(&p.interval, "interval", "10 s", "checkpoint interval")
	flags.StringVar(&p.home, "flink", ".cache/flink/2.3.0/pyflink", "Flink distribution")
	flags.StringVar(&p.csv, "csv", "build/compare.csv", "file for all measurements; report and charts stand beside it")
	flags.BoolVar(&p.resume, "resume", false, "go on with what the file of measurements has")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("found %q behind the flags, allowed is nothing", flags.Args())
	}
	for name, value := range map[string]int{"rounds": p.rounds, "parallelism": p.parallelism, "events": p.events, "orders": p.orders, "records": p.records, "keys": p.keys, "value-bytes": p.valueBytes, "updates": p.updates} {
		if value < 1 {
			return nil, fmt.Errorf("-%s: found %d, allowed is 1 or more", name, value)
		}
	}
	if !strings.HasSuffix(p.csv, ".csv") {
		return nil, errors.New("-csv: a file name ends in .csv")
	}
	return p, nil
}

func (p *plan) parseSizes(text string) error {
	p.sizes = nil
	for item := range strings.SplitSeq(text, ",") {
		size, err := strconv.ParseInt(item, 10, 64)
		if err != nil || size < 1 {
			return fmt.Errorf("found %q, allowed are whole numbers from 1", item)
		}
		p.sizes = append(p.sizes, size)
	}
	return nil
}

// list adds a flag whose value is a comma-separated choice.
func list(flags *flag.FlagSet, into *[]string, name string, value, allowed []string) {
	*into = value
	usage := fmt.Sprintf("comma-separated, of %s (default %s)", strings.Join(allowed, ","), strings.Join(value, ","))
	flags.Func(name, usage, func(text string) error {
		*into = strings.Split(text, ",")
		for _, item := range *into {
			if !slices.Contains(allowed, item) {
				return fmt.Errorf("found %q, allowed are %s", item, strings.Join(allowed, ", "))
			}
		}
		return nil
	})
}

// cases are the jobs of all workloads.
func (p *plan) cases() []testcase {
	var all []testcase
	for _, workload := range p.workloads {
		switch workload {
		case "nexmark":
			for _, query := range p.queries {
				all = append(all, testcase{workload, query, "org.flinkndb.testjobs.nexmark.NexmarkJob",
					[]string{"--query", query, "--events", strconv.Itoa(p.events)}, p.events})
			}
		case "sql":
			all = append(all, testcase{workload, "17 queries at once", "org.flinkndb.testjobs.SqlJob",
				[]string{"--records", strconv.Itoa(p.orders)}, p.orders})
		case "ledger":
			all = append(all, testcase{workload, "every kind of state", "org.flinkndb.testjobs.LedgerJob",
				[]string{"--records", strconv.Itoa(p.records), "--keys", strconv.Itoa(p.keys)}, p.records})
		case "cache":
			all = append(all, testcase{workload, fmt.Sprintf("%d keys of %d B", p.records, p.valueBytes), "org.flinkndb.testjobs.SizedStateJob",
				[]string{"--keys", strconv.Itoa(p.records), "--bytes", strconv.Itoa(p.valueBytes), "--updates", strconv.Itoa(p.records)}, 2 * p.records})
		}
	}
	return all
}

// run describes the job for Flink. Results that go to files are written below output.
func (c *testcase) run(parallelism int, output string) flinkcluster.Run {
	return flinkcluster.Run{EntryClass: c.entry, Args: append(c.args, "--output", "file://"+output), Parallelism: parallelism}
}
