// Command demo runs the flights job on a real Flink cluster with its state in a FlinkNDB server, kills
// a TaskManager mid-way, and compares every result with a computation of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/ndb"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

type settings struct {
	backend string
	store   string
	home    string
	data    string
	rate    int
	keep    bool
}

func main() {
	s := settings{}
	flag.StringVar(&s.backend, "backend", "ndb", "ndb, rocksdb or hashmap")
	flag.StringVar(&s.store, "store", "", "store of the server; empty = an embedded one, ndb = a MySQL NDB Cluster that the demo starts")
	flag.StringVar(&s.home, "flink", ".cache/flink/2.3.0/pyflink", "Flink distribution")
	flag.StringVar(&s.data, "data", ".cache/flights", "folder with flights.csv and weather.csv")
	flag.IntVar(&s.rate, "rate", 6000, "events a second")
	flag.BoolVar(&s.keep, "keep", false, "keep cluster and web interface until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (err error) {
	dir, err := os.MkdirTemp("", "fdemo")
	if err != nil {
		return fmt.Errorf("working folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	step("reading a year of flights and weather")
	events, err := readEvents(s.data)
	if err != nil {
		return err
	}
	input := filepath.Join(dir, "events.csv")
	if err := writeInput(input, events); err != nil {
		return err
	}
	d := &demo{settings: s, dir: dir, events: len(events)}
	if err := d.start(ctx); err != nil {
		return errors.Join(err, d.stop())
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.runJob(ctx, input); err != nil {
		return err
	}
	step("computing the same results without Flink, and comparing")
	verdict, differences, err := compare(expectedLines(events), d.output())
	if err != nil {
		return err
	}
	d.summary(ctx, verdict)
	if s.keep {
		fmt.Printf("\nFlink's web interface stays at %s until you press Ctrl-C.\n", d.cluster.URL())
		<-ctx.Done()
	}
	return differences
}

func step(text string) { fmt.Printf("→ %s\n", text) }

// demo is one run.
type demo struct {
	settings
	dir      string
	events   int
	server   *stateserver.Server
	cluster  *flinkcluster.Cluster
	database *ndb.Cluster
	job      string
	elapsed  time.Duration
	recovery time.Duration
	state    string

	lastProgress time.Time
}

func (d *demo) output() string { return filepath.Join(d.dir, "out") }

func (d *demo) start(ctx context.Context) error {
	config := map[string]string{
		"state.backend.type":               d.backend,
		"execution.checkpointing.interval": "3 s",
	}
	if d.backend == "ndb" {
		store, err := d.startStore(ctx)
		if err != nil {
			return err
		}
		step("starting the state server")
		binary, err := filepath.Abs("dist/flinkndb")
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		if d.server, err = stateserver.Start(ctx, binary, filepath.Join(d.dir, "s"), store); err != nil {
			return err
		}
		config["state.backend.type"] = "org.flinkndb.NdbStateBackendFactory"
		config["state.backend.ndb.address"] = d.server.Address()
	}
	step("starting Flink with two TaskManagers")
	home, err := filepath.Abs(d.home)
	if err != nil {
		return fmt.Errorf("folder of Flink: %w", err)
	}
	d.cluster, err = flinkcluster.Start(ctx, flinkcluster.Options{
		Home: home, Dir: filepath.Join(d.dir, "flink"), Jars: []string{flinkcluster.Shim("dist", home)},
		TaskManagers: 2, Slots: 1, Config: config,
	})
	if err != nil {
		return err
	}
	fmt.Printf("  web interface: %s\n", d.cluster.URL())
	return nil
}

// startStore starts what the server keeps its state in, if it is not embedded, and returns its URL.
func (d *demo) startStore(ctx context.Context) (string, error) {
	if d.store != "ndb" {
		return d.store, nil
	}
	step("starting a MySQL NDB Cluster")
	var errs []error
	for attempt := range 2 { // somebody may have taken a port since it was found to be free
		var err error
		d.database, err = ndb.Start(ctx, ndb.Options{
			Dir: filepath.Join(d.dir, fmt.Sprintf("ndb%d", attempt)), DataNodes: 1, Replicas: 1, MySQLServers: 1, DataMemory: "1G",
		})
		if err == nil {
			break
		}
		errs = append(errs, err)
	}
	if d.database == nil {
		return "", errors.Join(errs...)
	}
	return d.database.URL(), nil
}

func (d *demo) stop() error {
	var errs []error
	if d.cluster != nil {
		errs = append(errs, d.cluster.Stop())
	}
	if d.server != nil {
		errs = append(errs, d.server.Stop())
	}
	if d.database != nil {
		errs = append(errs, d.database.KillAll())
	}
	return errors.Join(errs...)
}

func (d *demo) runJob(ctx context.Context, input string) error {
	jar, err := d.cluster.Upload(ctx, "dist/flinkndb-demo.jar")
	if err != nil {
		return err
	}
	step("running the job")
	begin := time.Now()
	d.job, err = d.cluster.Submit(ctx, jar, flinkcluster.Run{
		EntryClass: "org.flinkndb.demo.FlightsJob", Parallelism: 2,
		Args: []string{"--input", "file://" + input, "--output", "file://" + d.output(), "--rate", fmt.Sprint(d.rate)},
	})
	if err != nil {
		return err
	}
	halfWay := begin.Add(time.Duration(d.events/d.rate) * time.Second / 2)
	killed := false
	err = d.cluster.AwaitJob(ctx, d.job, 15*time.Minute, "finished", func(job *flinkcluster.Job) bool {
		d.progress(ctx, job, begin)
		if !killed && time.Now().After(halfWay) && job.Running() {
			killed = true
			if err := d.killOne(ctx); err != nil {
				fmt.Println("\n  the kill failed:", err)
			}
		}
		return job.State == "FINISHED"
	})
	d.elapsed = time.Since(begin)
	fmt.Println()
	if err == nil && !killed {
		return errors.New("the job ended before a TaskManager could be killed")
	}
	return err
}

// progress shows one line, renewed about once a second.
func (d *demo) progress(ctx context.Context, job *flinkcluster.Job, begin time.Time) {
	if time.Since(d.lastProgress) < time.Second {
		return
	}
	d.lastProgress = time.Now()
	done := 0
	if stats, err := d.cluster.Checkpoints(ctx, d.job); err == nil {
		done = stats.Counts.Completed
	}
	fmt.Printf("\r  %4.0f s  %-10s %3d checkpoints   ", time.Since(begin).Seconds(), job.State, done)
}

// killOne kills a TaskManager, starts another one, and takes the time until the job is whole again and
// has completed a checkpoint.
func (d *demo) killOne(ctx context.Context) error {
	victim := d.cluster.TaskManagers()[0]
	fmt.Println()
	d.state = d.countState(ctx)
	step("kill -9 " + victim.Name())
	begin := time.Now()
	if err := victim.Kill(); err != nil {
		return err
	}
	if _, err := d.cluster.AddTaskManager(); err != nil {
		return err
	}
	if err := d.cluster.AwaitJob(ctx, d.job, 2*time.Minute, "restarting", func(j *flinkcluster.Job) bool { return !j.Running() }); err != nil {
		return err
	}
	if err := d.cluster.AwaitJob(ctx, d.job, 2*time.Minute, "running again", (*flinkcluster.Job).Running); err != nil {
		return err
	}
	d.recovery = time.Since(begin)
	return nil
}

// compare checks the job's results line by line; order does not matter, repetition does.
func compare(expected []string, folder string) (verdict string, differences, err error) {
	found, err := flinkcluster.ReadFileSink(folder)
	if err != nil {
		return "", nil, err
	}
	counts := make(map[string]int, len(expected))
	for _, line := range expected {
		counts[line]++
	}
	for _, line := range found {
		counts[line]--
	}
	var wrong []string
	for line, n := range counts {
		switch {
		case n > 0:
			wrong = append(wrong, "missing: "+line)
		case n < 0:
			wrong = append(wrong, "too much: "+line)
		}
	}
	if len(wrong) == 0 {
		return fmt.Sprintf("exactly right: all %d results agree", len(expected)), nil, nil
	}
	sort.Strings(wrong)
	return fmt.Sprintf("WRONG: %d of %d results differ", len(wrong), len(expected)),
		fmt.Errorf("results differ, for example:\n%s", strings.Join(wrong[:min(5, len(wrong))], "\n")), nil
}

func (d *demo) summary(ctx context.Context, verdict string) {
	fmt.Println("\nsummary")
	row := func(name, format string, args ...any) { fmt.Printf("  %-12s %s\n", name, fmt.Sprintf(format, args...)) }
	name := d.backend
	if d.store != "" {
		name += ", store " + d.store
	}
	row("backend", "%s", name)
	row("events", "%d in %.0f s, %.0f a second (throttled to %d)", d.events, d.elapsed.Seconds(), float64(d.events)/d.elapsed.Seconds(), d.rate)
	if stats, err := d.cluster.Checkpoints(ctx, d.job); err == nil {
		var durations, sizes []int64
		for _, c := range stats.History {
			if c.Status == "COMPLETED" {
				durations, sizes = append(durations, c.Duration), append(sizes, c.StateSize)
			}
		}
		row("checkpoints", "%d completed, %d failed; median %d ms, %d KB", stats.Counts.Completed, stats.Counts.Failed, median(durations), median(sizes)/1024)
	}
	row("recovery", "%.1f s from kill -9 until every task ran again", d.recovery.Seconds())
	if d.server != nil {
		row("state", "%s half-way; %s left when the job had ended", d.state, d.countState(ctx))
	}
	row("verdict", "%s", verdict)
}

// countState says how many rows the server holds.
func (d *demo) countState(ctx context.Context) string {
	if d.server == nil {
		return ""
	}
	rows, _, err := d.server.CountRows(ctx)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d rows", rows)
}

func median(numbers []int64) int64 {
	if len(numbers) == 0 {
		return 0
	}
	sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	return numbers[len(numbers)/2]
}
