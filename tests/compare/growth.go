package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// grown is what a state of one size costs.
type grown struct {
	backend   string
	megabytes int64
	failure   string

	// Medians of the checkpoints.
	checkpointMillis, checkpointBytes int64
	parts                             flinkcluster.CheckpointParts

	detected, running, first  time.Duration // since the kill: Flink noticed it, all tasks run again, a first record is done
	openMillis, restoreMillis int64         // Flink's own figures of the restored job, of all subtasks
}

const growthInterval = "2 s"

var grownColumns = []string{"backend", "megabytes", "round", "checkpoint_ms", "delay_ms", "sync_ms", "async_ms", "checkpoint_bytes", "noticed_ms", "running_ms", "first_ms", "initialize_ms", "restore_ms", "failure"}

func (g *grown) row(round int) []string {
	return []string{g.backend, fmt.Sprint(g.megabytes), fmt.Sprint(round), fmt.Sprint(g.checkpointMillis),
		fmt.Sprint(g.parts.Delay), fmt.Sprint(g.parts.Sync), fmt.Sprint(g.parts.Async), fmt.Sprint(g.checkpointBytes),
		fmt.Sprint(g.detected.Milliseconds()), fmt.Sprint(g.running.Milliseconds()), fmt.Sprint(g.first.Milliseconds()), fmt.Sprint(g.openMillis), fmt.Sprint(g.restoreMillis), g.failure}
}

func parseGrown(row []string) (grown, error) {
	n := numbers{row: row}
	millis := func() time.Duration { return time.Duration(n.integer()) * time.Millisecond }
	g := grown{backend: n.text(), megabytes: n.integer()}
	_ = n.text() // the round
	g.checkpointMillis = n.integer()
	g.parts = flinkcluster.CheckpointParts{Delay: n.integer(), Sync: n.integer(), Async: n.integer()}
	g.checkpointBytes = n.integer()
	g.detected, g.running, g.first = millis(), millis(), millis()
	g.openMillis, g.restoreMillis, g.failure = n.integer(), n.integer(), n.text()
	return g, n.err
}

// measureGrowth fills states of several sizes, updates them at the same rate, looks at the checkpoints, and kills the
// TaskManager while another one stands by.
func (p *plan) measureGrowth(ctx context.Context) ([]grown, error) {
	if !slices.Contains(p.workloads, "growth") {
		return nil, nil
	}
	journal, err := openJournal(strings.TrimSuffix(p.csv, ".csv")+"-growth.csv", grownColumns, p.resume)
	if err != nil {
		return nil, err
	}
	for round := range p.rounds {
		for _, megabytes := range p.sizes {
			for i := range p.backends {
				if err := p.growOnce(ctx, journal, p.backends[(i+round)%len(p.backends)], megabytes, round+1); err != nil {
					return nil, err
				}
			}
		}
	}
	return parseAll(journal, parseGrown)
}

func (p *plan) growOnce(ctx context.Context, journal *journal, backend string, megabytes int64, round int) error {
	if _, done := journal.find(backend, fmt.Sprint(megabytes), fmt.Sprint(round)); done {
		return nil
	}
	g := grown{backend: backend, megabytes: megabytes}
	err := p.grow(ctx, &g)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		g.failure = err.Error()
	}
	fmt.Fprintf(os.Stderr, "round %d of %d: %+v\n", round, p.rounds, g)
	return journal.add(g.row(round))
}

func (p *plan) grow(ctx context.Context, g *grown) (err error) {
	s, err := p.start(ctx, g.backend, 2, growthInterval)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	job, err := s.cluster.Submit(ctx, s.jar, flinkcluster.Run{EntryClass: "org.flinkndb.testjobs.SizedStateJob", Parallelism: 1, Args: []string{
		"--keys", strconv.FormatInt(g.megabytes*1_000_000/int64(p.valueBytes), 10), "--bytes", strconv.Itoa(p.valueBytes),
		"--updates", strconv.Itoa(p.updates * 600), "--rate", strconv.Itoa(p.updates)}})
	if err != nil {
		return err
	}
	var worker *flinkcluster.Process
	if err := flinkcluster.Poll(ctx, 20*time.Minute, "a filled state", func() bool {
		worker = s.workerThatSaid("FILLED")
		return worker != nil
	}); err != nil {
		return err
	}
	select {
	case <-time.After(p.settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.measureCheckpoints(ctx, job, g); err != nil {
		return err
	}
	return s.measureRecovery(ctx, job, worker, g)
}

// workerThatSaid returns the TaskManager that has printed a word, or nil.
func (s *session) workerThatSaid(word string) *flinkcluster.Process {
	for _, p := range s.cluster.TaskManagers() {
		if output, err := p.Output(); err == nil && strings.Contains(output, word+" ") {
			return p
		}
	}
	return nil
}

func (s *session) measureCheckpoints(ctx context.Context, job string, g *grown) error {
	// The first ones still write what was filled in.
	if err := s.cluster.AwaitCheckpoints(ctx, job, 2); err != nil {
		return err
	}
	before, err := s.cluster.Checkpoints(ctx, job)
	if err != nil {
		return err
	}
	if err := s.cluster.AwaitCheckpoints(ctx, job, 8); err != nil {
		return err
	}
	stats, err := s.cluster.Checkpoints(ctx, job)
	if err != nil {
		return err
	}
	var durations, sizes, delays, syncs, asyncs []int64
	for _, c := range stats.History {
		if c.Status != "COMPLETED" || c.ID <= before.Latest.Completed.ID {
			continue
		}
		parts, err := s.cluster.CheckpointParts(ctx, job, c.ID)
		if err != nil {
			return err
		}
		durations, sizes = append(durations, c.Duration), append(sizes, c.CheckpointedSize)
		delays, syncs, asyncs = append(delays, parts.Delay), append(syncs, parts.Sync), append(asyncs, parts.Async)
	}
	g.checkpointMillis, g.checkpointBytes = median(durations), median(sizes)
	g.parts = flinkcluster.CheckpointParts{Delay: median(delays), Sync: median(syncs), Async: median(asyncs)}
	return nil
}

func (s *session) measureRecovery(ctx context.Context, job string, worker *flinkcluster.Process, g *grown) error {
	killed := time.Now()
	if err := worker.Kill(); err != nil {
		return err
	}
	if err := s.cluster.AwaitJob(ctx, job, 2*time.Minute, "noticed", func(j *flinkcluster.Job) bool { return !j.Running() }); err != nil {
		return err
	}
	g.detected = time.Since(killed)
	if err := s.cluster.AwaitJob(ctx, job, 10*time.Minute, "running again", (*flinkcluster.Job).Running); err != nil {
		return err
	}
	g.running = time.Since(killed)
	if err := flinkcluster.Poll(ctx, 5*time.Minute, "a first result", func() bool { return s.workerThatSaid("FIRST") != nil }); err != nil {
		return err
	}
	output, err := s.workerThatSaid("FIRST").Output()
	if err != nil {
		return err
	}
	first, err := figure(output, `FIRST 0 (\d+)`)
	if err != nil {
		return err
	}
	g.first = time.UnixMilli(first).Sub(killed)
	if output, err = s.cluster.JobManager().Output(); err != nil {
		return err
	}
	restored := output[max(0, strings.LastIndex(output, "JobInitialization")):] // the newest of these spans
	if g.restoreMillis, err = figure(restored, `maxRestoreStateDurationMs\D+(\d+)`); err != nil {
		return err
	}
	g.openMillis, err = figure(restored, `maxInitializeStateDurationMs\D+(\d+)`)
	return err
}

// figure finds the number that a pattern's group matches.
func figure(text, pattern string) (int64, error) {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("the output has nothing like %s", pattern)
	}
	return strconv.ParseInt(found[1], 10, 64)
}

// reportGrowth is a table of medians.
func (p *plan) reportGrowth(all []grown) string {
	if len(all) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n## growth: %d updates a second of values of %d B, checkpoint every %s, measured %v after the state was filled, then a killed TaskManager\n\n"+
		"| state | backend | checkpoint | its barrier's way | synchronous part | asynchronous part | written by it | noticed | all tasks run | first record done | restore (Flink's figure) | initialize | failures |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
		p.updates, p.valueBytes, growthInterval, p.settle)
	for _, megabytes := range p.sizes {
		for _, backend := range p.backends {
			var checkpoint, delay, sync, async, written, detected, running, first, restore, open []int64
			failures := 0
			for _, g := range all {
				if g.backend != backend || g.megabytes != megabytes {
					continue
				}
				if g.failure != "" {
					failures++
					continue
				}
				checkpoint, written = append(checkpoint, g.checkpointMillis), append(written, g.checkpointBytes)
				delay, sync, async = append(delay, g.parts.Delay), append(sync, g.parts.Sync), append(async, g.parts.Async)
				detected, running, first = append(detected, g.detected.Milliseconds()), append(running, g.running.Milliseconds()), append(first, g.first.Milliseconds())
				restore, open = append(restore, g.restoreMillis), append(open, g.openMillis)
			}
			fmt.Fprintf(&out, "| %d MB | %s | %d ms | %d ms | %d ms | %d ms | %.1f MB | %d ms | %d ms | %d ms | %d ms | %d ms | %d |\n", megabytes, backend,
				median(checkpoint), median(delay), median(sync), median(async), float64(median(written))/1e6, median(detected), median(running), median(first), median(restore), median(open), failures)
		}
	}
	return out.String()
}

// growthPlots are charts by file name: duration of checkpoints, and time until the first record after a kill.
func (p *plan) growthPlots(all []grown) map[string]string {
	if len(all) == 0 {
		return nil
	}
	var sizes []string
	for _, megabytes := range p.sizes {
		sizes = append(sizes, fmt.Sprintf("%d MB", megabytes))
	}
	chart := func(title string, figure func(grown) int64) string {
		lines := make([]series, len(p.backends))
		for i, backend := range p.backends {
			lines[i].name = backend
			for _, megabytes := range p.sizes {
				var of []int64
				for _, g := range all {
					if g.backend == backend && g.megabytes == megabytes && g.failure == "" {
						of = append(of, figure(g))
					}
				}
				value := math.NaN()
				if len(of) > 0 {
					value = float64(median(of))
				}
				lines[i].values = append(lines[i].values, value)
			}
		}
		return barChart(title, sizes, lines, 0)
	}
	return map[string]string{
		"checkpoints": chart("duration of a checkpoint (ms) by size of the state", func(g grown) int64 { return g.checkpointMillis }),
		"recovery":    chart("from kill -9 of the TaskManager to the first record (ms) by size of the state", func(g grown) int64 { return g.first.Milliseconds() }),
	}
}
