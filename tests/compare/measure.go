package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// result is one run of a job.
type result struct {
	workload, name, backend string
	round                   int
	failure                 string // empty when the job finished
	records                 int
	seconds                 float64 // from when all tasks run to the end
	checkpoints             int
	checkpointMillis        int64   // median duration
	checkpointBytes         int64   // median of what a checkpoint wrote
	stateBytes              int64   // of the last checkpoint
	cleanUpSeconds          float64 // from the end of the job until its state was removed
	cpu                     cpuTimes
	memoryBytes             int64  // largest resident size since the processes started, summed
	digest                  string // of the result, where the job makes one
}

var resultColumns = []string{"workload", "case", "backend", "round", "records", "seconds", "checkpoints", "checkpoint_ms", "checkpoint_bytes",
	"state_bytes", "clean_up_seconds", "cpu_flink_seconds", "cpu_server_seconds", "cpu_database_seconds", "memory_bytes", "changes/digest", "failure"}

func (r *result) row() []string {
	return []string{r.workload, r.name, r.backend, fmt.Sprint(r.round), fmt.Sprint(r.records), decimal(r.seconds), fmt.Sprint(r.checkpoints),
		fmt.Sprint(r.checkpointMillis), fmt.Sprint(r.checkpointBytes), fmt.Sprint(r.stateBytes), decimal(r.cleanUpSeconds), decimal(r.cpu.flink), decimal(r.cpu.server), decimal(r.cpu.database),
		fmt.Sprint(r.memoryBytes), r.digest, r.failure}
}

func decimal(x float64) string { return fmt.Sprintf("%.2f", x) }

func parseResult(row []string) (result, error) {
	n := numbers{row: row}
	r := result{workload: n.text(), name: n.text(), backend: n.text(), round: int(n.integer()), records: int(n.integer()), seconds: n.decimal(),
		checkpoints: int(n.integer()), checkpointMillis: n.integer(), checkpointBytes: n.integer(), stateBytes: n.integer(), cleanUpSeconds: n.decimal(),
		cpu: cpuTimes{n.decimal(), n.decimal(), n.decimal()}, memoryBytes: n.integer(), digest: n.text(), failure: n.text()}
	return r, n.err
}

// measure runs everything, round by round, so that a change of the machine's speed meets all backends.
func (p *plan) measure(ctx context.Context) ([]result, error) {
	journal, err := openJournal(p.csv, resultColumns, p.resume)
	if err != nil {
		return nil, err
	}
	for round := range p.rounds {
		for i := range p.backends {
			backend := p.backends[(i+round)%len(p.backends)]
			if err := p.measureBackend(ctx, journal, backend, round+1); err != nil {
				return nil, err
			}
		}
	}
	return parseAll(journal, parseResult)
}

// progress is what is shown of a result at once. What failed has no figures.
func (r result) progress() string {
	if r.failure != "" {
		return fmt.Sprintf("failed: %.300s", r.failure)
	}
	return fmt.Sprintf("%.1f s, %.0f records/s, checkpoints %d of median %d ms, clean-up %.1f s, CPU %.1f s (%s)",
		r.seconds, float64(r.records)/max(r.seconds, 0.001), r.checkpoints, r.checkpointMillis, r.cleanUpSeconds, r.cpu.sum(), r.cpu)
}

// measureBackend runs all jobs of a round on one backend. After a failure the rest runs on a new cluster.
func (p *plan) measureBackend(ctx context.Context, journal *journal, backend string, round int) (err error) {
	var s *session
	defer func() {
		if s != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	for i, c := range p.cases() {
		if _, done := journal.find(c.workload, c.name, backend, fmt.Sprint(round)); done {
			continue
		}
		var r result
		var failure error
		if s == nil {
			s, failure = p.startWarm(ctx, backend, i)
		}
		if failure == nil {
			r, failure = s.run(ctx, c, p.parallelism)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.workload, r.name, r.records, r.backend, r.round = c.workload, c.name, c.records, backend, round
		if failure != nil {
			r.failure = failure.Error()
			if s != nil {
				if err := s.stop(); err != nil {
					return err
				}
				s = nil
			}
		}
		if err := journal.add(r.row()); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "round %d of %d, %s, %s %s: %s\n", round, p.rounds, backend, c.workload, c.name, r.progress())
	}
	return nil
}

// startWarm starts a session and runs a tenth of a job in it, so that the first one measured does not pay for the
// loading and compiling of classes alone.
func (p *plan) startWarm(ctx context.Context, backend string, first int) (*session, error) {
	s, err := p.start(ctx, backend, 1, p.interval)
	if err != nil {
		return nil, err
	}
	short := *p
	short.events, short.orders, short.records = max(1, p.events/10), max(1, p.orders/10), max(1, p.records/10)
	if _, err := s.run(ctx, short.cases()[first], p.parallelism); err != nil {
		return nil, errors.Join(fmt.Errorf("warming up: %w", err), s.stop())
	}
	return s, nil
}

func (s *session) run(ctx context.Context, c testcase, parallelism int) (r result, err error) {
	before, err := s.cpuTimes()
	if err != nil {
		return r, err
	}
	job, err := s.cluster.Submit(ctx, s.jar, c.run(parallelism, filepath.Join(s.dir, "out")))
	if err != nil {
		return r, err
	}
	if err := s.cluster.AwaitJob(ctx, job, 5*time.Minute, "running", func(j *flinkcluster.Job) bool { return j.Running() || j.State == "FINISHED" }); err != nil {
		return r, err
	}
	begin := time.Now()
	if err := s.cluster.AwaitJob(ctx, job, 30*time.Minute, "finished", func(j *flinkcluster.Job) bool { return j.State == "FINISHED" }); err != nil {
		return r, errors.Join(err, s.cluster.Cancel(ctx, job))
	}
	r.seconds = time.Since(begin).Seconds()
	stats, err := s.cluster.Checkpoints(ctx, job)
	if err != nil {
		return r, err
	}
	if stats.Counts.Restored > 0 {
		return r, fmt.Errorf("the job failed and was restored: %s", s.cluster.Exceptions(ctx, job))
	}
	r.addCheckpoints(stats)
	accumulators, err := s.cluster.Accumulators(ctx, job)
	if err != nil {
		return r, err
	}
	if digest, ok := accumulators["digest"]; ok {
		r.digest = accumulators["changes"] + "/" + digest
	}
	if r.cleanUpSeconds, err = s.awaitCleanUp(ctx); err != nil {
		return r, err
	}
	after, err := s.cpuTimes()
	if err != nil {
		return r, err
	}
	r.cpu = after.minus(before)
	r.memoryBytes, err = s.peakMemory()
	return r, err
}

func (r *result) addCheckpoints(stats *flinkcluster.Checkpoints) {
	r.checkpoints = stats.Counts.Completed
	if stats.Latest.Completed != nil {
		r.stateBytes = stats.Latest.Completed.StateSize
	}
	var durations, sizes []int64
	for _, c := range stats.History {
		if c.Status == "COMPLETED" {
			durations, sizes = append(durations, c.Duration), append(sizes, c.CheckpointedSize)
		}
	}
	r.checkpointMillis, r.checkpointBytes = median(durations), median(sizes)
}

func median[T int64 | float64](numbers []T) T {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[len(sorted)/2]
}
