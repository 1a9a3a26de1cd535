package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

// plan is what to measure.
type plan struct {
	backends, workloads       []string
	rounds                    int
	sqlRecords                int
	ledgerRecords, ledgerKeys int
	memory, interval          string
	home, csv                 string
}

// result is one run of a job.
type result struct {
	workload, backend string
	round             int
	failure           string // empty when the job finished
	records           int
	seconds           float64 // from the first running task to the end
	checkpoints       int
	checkpointMillis  int64 // median duration
	checkpointBytes   int64 // median of what a checkpoint wrote
	cpuSeconds        float64
}

// measure runs everything: round by round, so that a change of the machine's speed meets all backends.
func (p *plan) measure(ctx context.Context) ([]result, error) {
	var results []result
	for round := range p.rounds {
		for _, workload := range p.workloads {
			for _, backend := range p.backends {
				r, err := p.runOnce(ctx, workload, backend)
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				r.workload, r.backend, r.round = workload, backend, round+1
				if err != nil {
					r.failure = err.Error()
				}
				results = append(results, r)
				fmt.Fprintf(os.Stderr, "round %d of %d, %s on %s: %.1f s %.300s\n", round+1, p.rounds, workload, backend, r.seconds, r.failure)
			}
		}
	}
	return results, nil
}

func (p *plan) runOnce(ctx context.Context, workload, backend string) (r result, err error) {
	dir, err := os.MkdirTemp("", "fcmp")
	if err != nil {
		return r, fmt.Errorf("working folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	config := map[string]string{
		"execution.checkpointing.interval":     p.interval,
		"state.backend.type":                   backend,
		"execution.checkpointing.incremental":  "true", // as good as RocksDB can
		"taskmanager.memory.network.min":       "256m",
		"taskmanager.memory.network.max":       "256m",
		"table.optimizer.join-reorder-enabled": "false",
	}
	var server *stateserver.Server
	if backend == "ndb" {
		binary, err := filepath.Abs("dist/flinkndb")
		if err != nil {
			return r, err
		}
		if server, err = stateserver.Start(ctx, binary, filepath.Join(dir, "s"), ""); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, server.Stop()) }()
		config["state.backend.type"] = "org.flinkndb.NdbStateBackendFactory"
		config["state.backend.ndb.address"] = server.Address()
	}
	if backend == "rocksdb" {
		config["taskmanager.memory.managed.fraction"] = "0.4" // Flink's default; the heap backends leave it to the heap
	}
	home, err := filepath.Abs(p.home)
	if err != nil {
		return r, err
	}
	cluster, err := flinkcluster.Start(ctx, flinkcluster.Options{
		Home: home, Dir: filepath.Join(dir, "flink"), Jars: []string{"dist/flinkndb-flink-2.jar"},
		TaskManagers: 1, Slots: 2, TaskManagerMemory: p.memory, Config: config,
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	jar, err := cluster.Upload(ctx, "dist/flinkndb-testjobs.jar")
	if err != nil {
		return r, err
	}
	run, records := p.job(workload, filepath.Join(dir, "out"))
	r.records = records
	job, err := cluster.Submit(ctx, jar, run)
	if err != nil {
		return r, err
	}
	if err := cluster.AwaitJob(ctx, job, 5*time.Minute, "running", func(j *flinkcluster.Job) bool { return j.Running() || j.State == "FINISHED" }); err != nil {
		return r, err
	}
	begin := time.Now()
	if err := cluster.AwaitJob(ctx, job, 30*time.Minute, "finished", func(j *flinkcluster.Job) bool { return j.State == "FINISHED" }); err != nil {
		return r, err
	}
	r.seconds = time.Since(begin).Seconds()
	if err := r.addCheckpoints(ctx, cluster, job); err != nil {
		return r, err
	}
	pids := cluster.Pids()
	if server != nil {
		pids = append(pids, server.Pid())
	}
	for _, pid := range pids {
		seconds, err := cpuSeconds(pid)
		if err != nil {
			return r, err
		}
		r.cpuSeconds += seconds
	}
	return r, nil
}

func (p *plan) job(workload, output string) (run flinkcluster.Run, records int) {
	if workload == "sql" {
		return flinkcluster.Run{
			EntryClass:  "org.flinkndb.testjobs.SqlJob",
			Args:        []string{"--records", strconv.Itoa(p.sqlRecords), "--output", "file://" + output},
			Parallelism: 2,
		}, p.sqlRecords
	}
	return flinkcluster.Run{
		EntryClass:  "org.flinkndb.testjobs.LedgerJob",
		Args:        []string{"--records", strconv.Itoa(p.ledgerRecords), "--keys", strconv.Itoa(p.ledgerKeys)},
		Parallelism: 2,
	}, p.ledgerRecords
}

func (r *result) addCheckpoints(ctx context.Context, cluster *flinkcluster.Cluster, job string) error {
	stats, err := cluster.Checkpoints(ctx, job)
	if err != nil {
		return err
	}
	r.checkpoints = stats.Counts.Completed
	var durations, sizes []int64
	for _, c := range stats.History {
		if c.Status == "COMPLETED" {
			durations, sizes = append(durations, c.Duration), append(sizes, c.CheckpointedSize)
		}
	}
	r.checkpointMillis, r.checkpointBytes = median(durations), median(sizes)
	return nil
}

// cpuSeconds reads, on Linux, what a process and its ended children have used.
func cpuSeconds(pid int) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	// After the name in parentheses; utime, stime, cutime and cstime are the fields 14 to 17.
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	total := 0.0
	for _, field := range fields[11:15] {
		ticks, err := strconv.ParseFloat(string(field), 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		total += ticks
	}
	const ticksASecond = 100 // USER_HZ, on every Linux that Go runs on
	return total / ticksASecond, nil
}

func median[T int64 | float64](numbers []T) T {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[len(sorted)/2]
}
