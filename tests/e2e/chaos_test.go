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
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/faultproxy"
	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/freeport"
)

const (
	// chaosMinutes is the variable that says how long a campaign lasts.
	chaosMinutes = "FLINKNDB_CHAOS_MINUTES"
	// chaosSeed is the variable that repeats the choices of a campaign.
	chaosSeed = "FLINKNDB_CHAOS_SEED"
	// shortCampaign is how many minutes of input a campaign has that nobody asked for: with `make test`. It takes
	// up to twice as long, because the job stands still while it recovers.
	shortCampaign = 1.5
	// databaseConnections is how many the server opens to each MySQL server at most, unless told otherwise.
	databaseConnections = 16
	// chaosDiskBytes is the size of the disk that faults fill. Pebble takes memory for changes in steps that double
	// up to 64 MiB, and flushes none before half of that has come together: by then it has made nine logs of 70 MiB
	// each. A smaller disk is full without any fault.
	chaosDiskBytes = 1 << 30
)

// campaign injects faults into a job whose every record checks the state it finds.
type campaign struct {
	*environment
	random *rand.Rand
	proxy  *faultproxy.Proxy
	faults []fault
	// deck holds the faults that come next, in this order: each kind strikes once before any does again.
	deck   []fault
	counts map[string]int
	// seen counts what the faults led to.
	seen map[string]int
	// leftOut are faults that cannot be injected here, and why.
	leftOut []string
	// idle is what the server had open before the job came.
	idle serverThings
	// sockets is how many the server may have open when no session is left: it listens, Flink's processes keep one
	// each to release snapshots, and a database takes some.
	sockets    int
	serverHTTP string
	ledger     ledger
	job        string
	// lasting is how long to strike at most; the job then reads what is left of its input.
	lasting time.Duration
}

// TestChaos has random faults strike Flink, the server, and the network between them, on the embedded store.
func TestChaos(t *testing.T) {
	disk, err := smallDisk(t, chaosDiskBytes)
	if err != nil {
		c := newCampaign(t, "")
		c.leaveOut("full disk", err)
		c.run()
		return
	}
	c := newCampaign(t, "pebble:"+filepath.Join(disk.Dir(), "store"))
	c.faults = append(c.faults, c.diskFaults(disk)...)
	c.run()
}

// TestChaosOnNDB adds the database's processes to what is struck. It runs when asked for: six processes more on the
// processors of a small machine make it long.
func TestChaosOnNDB(t *testing.T) {
	if os.Getenv(chaosMinutes) == "" {
		t.Skipf("%s is not set: see make chaos", chaosMinutes)
	}
	database := startNDB(t)
	c := newCampaign(t, database.URL("durability=disk"))
	c.faults = append(c.faults, c.databaseFaults(database)...)
	c.sockets += 2 * databaseConnections
	c.run()
}

// campaignMinutes says how much input a campaign has.
func campaignMinutes(t *testing.T) float64 {
	t.Helper()
	text := os.Getenv(chaosMinutes)
	if text == "" {
		return shortCampaign
	}
	minutes, err := strconv.ParseFloat(text, 64)
	if err != nil || minutes <= 0 {
		t.Fatalf("%s: found %q, allowed are numbers over 0", chaosMinutes, text)
	}
	return minutes
}

func newCampaign(t *testing.T, store string) *campaign {
	t.Helper()
	minutes := campaignMinutes(t)
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
	clocks := newClocks(t, dir)
	serverHTTP := freeport.Address(t)
	limit := time.Duration(minutes*float64(time.Minute))*4 + 15*time.Minute
	e := newEnvironmentFor(t, limit, clocks.buildServer(t), store, flinkcluster.Options{
		TaskManagers: 2, Slots: 2, HighAvailability: true, Environment: clocks.environment, Config: map[string]string{
			"state.backend.ndb.address":                            proxy.Address(),
			"heartbeat.timeout":                                    "5000",
			"execution.checkpointing.timeout":                      "60 s",
			"execution.checkpointing.tolerable-failed-checkpoints": "100",
		}}, "--abandoned-retention", "1s", "--sweep-interval", "1s", "--flatten-delay", "0s", "--http", serverHTTP)
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	proxy.Forward(strings.TrimPrefix(e.server.Address(), "unix://"))
	const rate = 2_000
	c := &campaign{
		environment: e, random: rand.New(rand.NewPCG(seed, 0)), proxy: proxy, counts: make(map[string]int), seen: make(map[string]int), sockets: 9,
		serverHTTP: serverHTTP, ledger: ledger{keys: 500, records: int(minutes * 60 * rate), rate: rate},
		lasting: time.Duration(2 * minutes * float64(time.Minute)),
	}
	c.faults = append(c.processFaults(), c.networkFaults()...)
	c.faults = append(c.faults, c.clockFaults(clocks)...)
	c.idle = c.serverThings()
	return c
}

// leaveOut notes that a fault cannot be injected here.
func (c *campaign) leaveOut(name string, why error) {
	c.leftOut = append(c.leftOut, fmt.Sprintf("%s: %v", name, why))
}

// run strikes until the job has read all its input, and then demands the exact result, and that nothing is left.
func (c *campaign) run() {
	c.t.Helper()
	c.job = c.submit(c.upload(), c.ledger.run(2))
	for end := time.Now().Add(c.lasting); time.Now().Before(end) && !c.finished(); {
		c.settle()
		time.Sleep(time.Duration(c.random.IntN(1_000)) * time.Millisecond) // the moment is to be random
		switch c.random.IntN(8) {
		case 0, 1:
			c.move()
		case 2:
			c.fork()
		default:
			c.strike(1 + c.random.IntN(2))
		}
	}
	c.must(flinkcluster.Poll(c.ctx, c.lasting+5*time.Minute, "the end of the input", c.finished))
	c.verify(c.ledger)
	c.awaitNothingLeft()
	c.report()
}

// report prints what happened and what was found.
func (c *campaign) report() {
	c.t.Helper()
	total := 0
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		c.t.Logf("%4d × %s", c.counts[name], name)
		total += c.counts[name]
	}
	for _, name := range slices.Sorted(maps.Keys(c.seen)) {
		c.t.Logf("seen: %4d × %s", c.seen[name], name)
	}
	for _, why := range c.leftOut {
		c.t.Logf("left out: %s", why)
	}
	c.t.Logf("%d faults and moves, %d kinds of fault left out; each of %d records found its key's states as they must be, %d keys exact, nothing left",
		total, len(c.leftOut), c.ledger.records, c.ledger.keys)
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
	c.must(c.cluster.AwaitJob(c.ctx, c.job, 5*time.Minute, "running and taking checkpoints", func(j *flinkcluster.Job) bool {
		if j.State == "FINISHED" {
			return true
		}
		if !c.server.Running() {
			c.t.Fatal("the server ended, and no fault made it")
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
	for range together {
		f := c.next(struck)
		struck[f.of] = true
		names = append(names, f.name)
		c.counts[f.name]++
		amend, err := f.strike()
		if err != nil {
			c.t.Fatalf("%s: %v", f.name, err)
		}
		if f.of == "database" { // a server does not start without it
			amends = slices.Insert(amends, 0, amend)
		} else {
			amends = append(amends, amend)
		}
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

// next draws the next fault of something that is not among those struck.
func (c *campaign) next(struck map[string]bool) fault {
	for {
		for i, f := range c.deck {
			if !struck[f.of] {
				c.deck = slices.Delete(c.deck, i, i+1)
				return f
			}
		}
		for _, i := range c.random.Perm(len(c.faults)) {
			c.deck = append(c.deck, c.faults[i])
		}
	}
}

// move takes the job elsewhere, with another parallelism: through a savepoint or a retained checkpoint, while a
// connection may be cut. A savepoint that fails leaves the job running where it is.
func (c *campaign) move() {
	c.t.Helper()
	run := c.ledger.run(1 + c.random.IntN(3)) // a fork is to find a slot
	kind := []string{"NATIVE", "CANONICAL", "retained checkpoint"}[c.random.IntN(3)]
	defer c.cutSoon()()
	if kind == "retained checkpoint" {
		stats, err := c.cluster.Checkpoints(c.ctx, c.job)
		c.must(err)
		if c.finished() || stats.Latest.Completed == nil {
			return
		}
		if !c.stop() {
			return
		}
		run.SavepointPath, run.ClaimMode = c.retainedCheckpoint(), "CLAIM"
	} else {
		path, err := c.cluster.Savepoint(c.ctx, c.job, kind, true)
		if err != nil {
			c.t.Logf("%s savepoint: %.200v", kind, err)
			c.seen["savepoint that failed"]++
			return
		}
		run.SavepointPath, run.ClaimMode = path, "CLAIM"
	}
	c.t.Logf("move with %s to parallelism %d", kind, run.Parallelism)
	c.counts["move with "+kind]++
	c.job = c.submit(c.upload(), run) // a JobManager that was killed took earlier uploads with it
	if c.random.IntN(2) == 0 {
		c.strike(1) // while the job is restored
	}
}

// cutSoon has connections cut within the next moments, or not; what it returns calls that off.
func (c *campaign) cutSoon() func() {
	if c.random.IntN(2) == 0 {
		return func() {}
	}
	cut := time.AfterFunc(time.Duration(c.random.IntN(300))*time.Millisecond, c.proxy.Cut)
	return func() { cut.Stop() }
}

// fork starts a second job from a savepoint of the running one, strikes both, has the second take checkpoints of what
// it makes of its parent's state, and cancels it. Like the first, it checks each state that it finds.
func (c *campaign) fork() {
	c.t.Helper()
	defer c.cutSoon()()
	path, err := c.cluster.Savepoint(c.ctx, c.job, "NATIVE", false)
	if err != nil {
		c.t.Logf("savepoint for a fork: %.200v", err)
		c.seen["savepoint that failed"]++
		return
	}
	c.t.Log("fork")
	c.counts["fork"]++
	run := c.ledger.run(1)
	run.SavepointPath, run.ClaimMode = path, "NO_CLAIM"
	parent := c.job
	c.job = c.submit(c.upload(), run)
	c.settle()
	c.strike(1)
	c.settle()
	if !c.finished() && c.stop() {
		c.dispose(c.retainedCheckpoint())
	}
	c.dispose(path)
	c.job = parent
}

// dispose has Flink discard what it left behind. Should it fail, the end of the campaign shows the snapshot.
func (c *campaign) dispose(path string) {
	c.t.Helper()
	if err := c.cluster.DisposeSavepoint(c.ctx, path); err != nil {
		c.t.Logf("disposal: %.200v", err)
		c.seen["disposal that failed"]++
	}
}

// stop cancels the job; false says that it had come to its end.
func (c *campaign) stop() bool {
	c.t.Helper()
	err := c.cluster.Cancel(c.ctx, c.job)
	if err != nil {
		// It may have ended meanwhile, which Flink's REST interface tells seconds later.
		c.t.Logf("cancel: %.200v", err)
		c.must(c.cluster.AwaitJob(c.ctx, c.job, 10*time.Second, "finished", func(j *flinkcluster.Job) bool { return j.State == "FINISHED" }))
	}
	return err == nil
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
