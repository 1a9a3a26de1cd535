//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/faultproxy"
	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/ndb"
)

const (
	// chaosMinutes is the variable that says how long a campaign lasts.
	chaosMinutes = "FLINKNDB_CHAOS_MINUTES"
	// chaosSeed is the variable that repeats the choices of a campaign.
	chaosSeed = "FLINKNDB_CHAOS_SEED"
	// databaseConnections is how many the server opens to each MySQL server at most, unless told otherwise.
	databaseConnections = 16
)

// fault is something bad that ends again.
type fault struct {
	name string
	// of is what it strikes; faults of the same thing do not happen together.
	of string
	// strike does it; what it returns puts things right.
	strike func() (amend func() error, err error)
	// long says that it may last; others are put right at once or soon.
	long bool
}

// campaign injects faults into a job whose every record checks the state it finds.
type campaign struct {
	*environment
	random *rand.Rand
	proxy  *faultproxy.Proxy
	faults []fault
	counts map[string]int
	// sockets is how many the server may have open when no session is left: it listens, Flink's processes keep one
	// each to release snapshots, and a database takes some.
	sockets int
	ledger  ledger
	job     string
}

// TestChaos has random faults strike Flink, the server, and the network between them, on the embedded store.
func TestChaos(t *testing.T) {
	c := newCampaign(t, campaignMinutes(t), "")
	c.run()
}

// TestChaosOnNDB adds the database's processes to what is struck.
func TestChaosOnNDB(t *testing.T) {
	minutes := campaignMinutes(t)
	database := startNDB(t)
	c := newCampaign(t, minutes, database.URL("durability=disk"))
	c.faults = append(c.faults, c.databaseFaults(database)...)
	c.sockets += 2 * databaseConnections
	c.run()
}

// campaignMinutes says how long a campaign lasts, and skips the test when nobody asked for one.
func campaignMinutes(t *testing.T) float64 {
	t.Helper()
	text := os.Getenv(chaosMinutes)
	if text == "" {
		t.Skipf("a campaign lasts minutes or hours: `make chaos`, or set %s", chaosMinutes)
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("%s: found %q, allowed are numbers over 0", chaosMinutes, text)
	}
	return minutes
}

func newCampaign(t *testing.T, minutes float64, store string) *campaign {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(chaosSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", chaosSeed, err)
		}
	}
	t.Logf("%s=%d, %g minutes", chaosSeed, seed, minutes)
	dir, err := os.MkdirTemp("", "fcha")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	proxy, err := faultproxy.Listen(filepath.Join(dir, "p"))
	if err != nil {
		t.Fatal(err)
	}
	e := newEnvironmentFor(t, time.Duration(minutes*float64(time.Minute))+15*time.Minute, store, flinkcluster.Options{
		TaskManagers: 2, Slots: 2, HighAvailability: true, Config: map[string]string{
			"state.backend.ndb.address":                            proxy.Address(),
			"heartbeat.timeout":                                    "5000",
			"execution.checkpointing.timeout":                      "60 s",
			"execution.checkpointing.tolerable-failed-checkpoints": "100",
		}}, "--abandoned-retention", "1s")
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	proxy.Forward(strings.TrimPrefix(e.server.Address(), "unix://"))
	const rate = 2_000
	c := &campaign{
		environment: e, random: rand.New(rand.NewPCG(seed, 0)), proxy: proxy, counts: make(map[string]int), sockets: 8,
		ledger: ledger{keys: 500, records: int(minutes * 60 * rate), rate: rate},
	}
	c.faults = c.commonFaults()
	return c
}

// run strikes until the job has read all its input, and then demands the exact result, and that nothing is left.
func (c *campaign) run() {
	c.t.Helper()
	c.job = c.submit(c.upload(), c.ledger.run(2))
	for !c.finished() {
		c.settle()
		time.Sleep(time.Duration(c.random.IntN(1_000)) * time.Millisecond) // the moment is to be random
		if c.random.IntN(4) == 0 {
			c.move()
		} else {
			c.strike(1 + c.random.IntN(2))
		}
	}
	c.verify(c.ledger)
	c.awaitNothingLeft()
	total := 0
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		c.t.Logf("%4d × %s", c.counts[name], name)
		total += c.counts[name]
	}
	c.t.Logf("%d faults and moves; %d records, %d keys exact, nothing left", total, c.ledger.records, c.ledger.keys)
	if total == 0 {
		c.t.Fatal("nothing happened: the campaign shows nothing")
	}
}

// finished says whether the job has come to its end. A JobManager that was killed later does not know it any more;
// should it have lost a job that had not ended, the results will tell.
func (c *campaign) finished() bool {
	c.t.Helper()
	var done bool
	var unknownSince time.Time
	c.must(flinkcluster.Poll(c.ctx, 3*time.Minute, "state of the job", func() bool {
		job, err := c.cluster.Job(c.ctx, c.job)
		if !errors.Is(err, flinkcluster.ErrNotFound) {
			unknownSince = time.Time{}
		} else if unknownSince.IsZero() {
			unknownSince = time.Now()
		}
		done = err == nil && job.State == "FINISHED" || !unknownSince.IsZero() && time.Since(unknownSince) > 30*time.Second
		return err == nil || done
	}))
	return done
}

// settle waits until the job runs and takes checkpoints.
func (c *campaign) settle() {
	c.t.Helper()
	before := -1
	c.must(c.cluster.AwaitJob(c.ctx, c.job, 4*time.Minute, "running and taking checkpoints", func(j *flinkcluster.Job) bool {
		if j.State == "FINISHED" {
			return true
		}
		stats, err := c.cluster.Checkpoints(c.ctx, c.job)
		if err != nil || !j.Running() {
			return false
		}
		if before < 0 {
			before = stats.Counts.Completed
		}
		return stats.Counts.Completed > before
	}))
}

// strike has some faults happen together, lets them last, and puts everything right.
func (c *campaign) strike(together int) {
	c.t.Helper()
	var amends []func() error
	var names []string
	lasting := time.Duration(0)
	struck := make(map[string]bool)
	for _, i := range c.random.Perm(len(c.faults)) {
		f := c.faults[i]
		if struck[f.of] || len(struck) == together {
			continue
		}
		struck[f.of] = true
		names = append(names, f.name)
		c.counts[f.name]++
		amend, err := f.strike()
		c.must(err)
		amends = append(amends, amend)
		if f.long {
			lasting = max(lasting, time.Duration(c.random.IntN(8_000))*time.Millisecond)
		}
	}
	c.t.Logf("%s, for %v", strings.Join(names, " and "), lasting)
	time.Sleep(lasting)
	for _, amend := range amends {
		c.must(amend())
	}
}

// move takes the job elsewhere, with another parallelism: through a savepoint or a retained checkpoint, while a
// connection may be cut. A savepoint that fails leaves the job running where it is.
func (c *campaign) move() {
	c.t.Helper()
	run := c.ledger.run(1 + c.random.IntN(4))
	kind := []string{"NATIVE", "CANONICAL", "retained checkpoint"}[c.random.IntN(3)]
	if c.random.IntN(2) == 0 {
		cut := time.AfterFunc(time.Duration(c.random.IntN(300))*time.Millisecond, c.proxy.Cut)
		defer cut.Stop()
	}
	if kind == "retained checkpoint" {
		stats, err := c.cluster.Checkpoints(c.ctx, c.job)
		c.must(err)
		if c.finished() || stats.Latest.Completed == nil {
			return
		}
		if err := c.cluster.Cancel(c.ctx, c.job); err != nil {
			// It may have ended meanwhile, which Flink's REST interface tells seconds later.
			c.t.Logf("cancel: %.200v", err)
			c.must(c.cluster.AwaitJob(c.ctx, c.job, 10*time.Second, "finished", func(j *flinkcluster.Job) bool { return j.State == "FINISHED" }))
			return
		}
		run.SavepointPath, run.ClaimMode = c.retainedCheckpoint(), "CLAIM"
	} else {
		path, err := c.cluster.Savepoint(c.ctx, c.job, kind, true)
		if err != nil {
			c.t.Logf("%s savepoint: %.200v", kind, err)
			c.counts["savepoint that failed"]++
			return
		}
		run.SavepointPath, run.ClaimMode = path, "CLAIM"
	}
	c.t.Logf("move with %s to parallelism %d", kind, run.Parallelism)
	c.counts["move with "+kind]++
	c.job = c.submit(c.upload(), run) // a JobManager that was killed took earlier uploads with it
}

// retainedCheckpoint is the newest that the job has left behind. Flink's REST interface may be seconds old.
func (c *campaign) retainedCheckpoint() string {
	c.t.Helper()
	files, err := filepath.Glob(filepath.Join(c.cluster.CheckpointDir(), c.job, "chk-*", "_metadata"))
	c.must(err)
	newest, number := "", -1
	for _, file := range files {
		dir := filepath.Dir(file)
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "chk-"))
		c.must(err)
		if n > number {
			newest, number = dir, n
		}
	}
	if newest == "" {
		c.t.Fatalf("job %s left no checkpoint behind", c.job)
	}
	return newest
}

func (c *campaign) commonFaults() []fault {
	nothing := func() error { return nil }
	manager := func() *flinkcluster.Process {
		running := c.cluster.TaskManagers()
		return running[c.random.IntN(len(running))]
	}
	return []fault{
		{name: "TaskManager killed", of: "TaskManager", strike: func() (func() error, error) {
			err := manager().Kill()
			return func() error { _, err := c.cluster.AddTaskManager(); return err }, err
		}},
		{name: "TaskManager frozen", of: "TaskManager", long: true, strike: func() (func() error, error) {
			frozen := manager()
			return func() error { return frozen.Signal(syscall.SIGCONT) }, frozen.Signal(syscall.SIGSTOP)
		}},
		{name: "JobManager killed", of: "JobManager", strike: func() (func() error, error) {
			return func() error { return c.cluster.StartJobManager(c.ctx) }, c.cluster.JobManager().Kill()
		}},
		{name: "server killed", of: "server", long: true, strike: func() (func() error, error) {
			return func() error { return c.server.Restart(c.ctx) }, c.server.Kill()
		}},
		{name: "server stopped in its own way", of: "server", strike: func() (func() error, error) {
			return func() error { return c.server.Restart(c.ctx) }, c.server.Stop()
		}},
		{name: "server frozen", of: "server", long: true, strike: func() (func() error, error) {
			return c.server.Thaw, c.server.Freeze()
		}},
		{name: "connections cut", of: "network", strike: func() (func() error, error) {
			c.proxy.Cut()
			return nothing, nil
		}},
		{name: "network stalled", of: "network", long: true, strike: func() (func() error, error) {
			c.proxy.Stall()
			return func() error { c.proxy.Resume(); return nil }, nil
		}},
		{name: "network slow", of: "network", long: true, strike: func() (func() error, error) {
			c.proxy.Delay(time.Duration(1+c.random.IntN(40)) * time.Millisecond)
			return func() error { c.proxy.Delay(0); return nil }, nil
		}},
	}
}

// databaseFaults leave one of each two processes alone, which is what two replicas are for, and take all once in a while.
func (c *campaign) databaseFaults(database *ndb.Cluster) []fault {
	nodes := database.DataNodeIDs()
	return []fault{
		{name: "data node killed", of: "database", long: true, strike: func() (func() error, error) {
			node := nodes[c.random.IntN(len(nodes))]
			return func() error { return database.StartDataNode(c.ctx, node) }, database.KillDataNode(node)
		}},
		{name: "MySQL server killed", of: "database", long: true, strike: func() (func() error, error) {
			n := 1 + c.random.IntN(2)
			return func() error { return database.StartMySQL(c.ctx, n) }, database.KillMySQL(n)
		}},
		{name: "MySQL server frozen", of: "database", long: true, strike: func() (func() error, error) {
			n := 1 + c.random.IntN(2)
			return func() error { return database.ResumeMySQL(n) }, database.PauseMySQL(n)
		}},
		{name: "whole database killed", of: "database", strike: func() (func() error, error) {
			return func() error { return database.Restart(c.ctx) }, database.KillAll()
		}},
	}
}

// awaitNothingLeft demands that the store is empty once the job has ended, without sessions, and that the server has
// closed their connections. What a killed JobManager did not come to discard, it never discards: that is released
// by hand, as an administrator would, and counted.
func (c *campaign) awaitNothingLeft() {
	c.t.Helper()
	var left error
	if err := flinkcluster.Poll(c.ctx, 2*time.Minute, "an empty store", func() bool {
		left = c.whatIsLeft()
		return left == nil
	}); err != nil {
		c.t.Fatal(errors.Join(err, left))
	}
	sockets, err := c.serverSockets()
	c.must(err)
	if sockets > c.sockets {
		c.t.Errorf("the server has %d sockets without a session, at most %d are for other purposes", sockets, c.sockets)
	}
}

func (c *campaign) whatIsLeft() error {
	var sessions struct {
		Sessions []struct {
			ID string `json:"session_id"`
		} `json:"sessions"`
	}
	var snapshots struct {
		Snapshots []struct {
			ID string `json:"snapshot_id"`
		} `json:"snapshots"`
	}
	if err := errors.Join(c.server.Ask(c.ctx, &sessions, "sessions"), c.server.Ask(c.ctx, &snapshots, "snapshots")); err != nil {
		return err
	}
	if n := len(sessions.Sessions); n > 0 {
		return fmt.Errorf("%d sessions", n)
	}
	for _, snapshot := range snapshots.Snapshots {
		if _, err := c.server.Command(c.ctx, "snapshots", "--release", snapshot.ID); err != nil {
			return err
		}
		c.counts["snapshot that Flink lost track of"]++
	}
	return c.rowsAfterCollection()
}

// serverSockets counts the open sockets of the server.
func (c *campaign) serverSockets() (n int, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.server.Pid()))
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n, nil
}
