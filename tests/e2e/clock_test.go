//go:build e2e

package e2e

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/wallclock"
)

// clocks lets the wall clocks of the server and of Flink's processes jump.
type clocks struct {
	dir    string
	server *wallclock.Clock
	flink  map[string]*wallclock.Clock // by kind of process
	// preload is the library that has JVMs follow a clock, and missing why there is none.
	preload string
	missing error
}

func newClocks(t *testing.T, dir string) *clocks {
	t.Helper()
	clock := func(kind string) *wallclock.Clock {
		clock, err := wallclock.New(filepath.Join(dir, "clock-"+kind))
		if err != nil {
			t.Fatal(err)
		}
		return clock
	}
	c := &clocks{dir: dir, server: clock("server"), flink: map[string]*wallclock.Clock{
		"jobmanager": clock("jobmanager"), "taskmanager": clock("taskmanager"),
	}}
	name, file, _ := strings.Cut(c.server.Environment(), "=")
	t.Setenv(name, file)
	if c.preload, c.missing = wallclock.BuildPreload(t.Context(), dir); c.missing != nil && !errors.Is(c.missing, wallclock.ErrNoCompiler) {
		t.Fatal(c.missing)
	}
	return c
}

// buildServer builds a server whose clock can be set.
func (c *clocks) buildServer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(c.dir, "flinkndb")
	if err := wallclock.Build(t.Context(), "github.com/flinkndb/flinkndb/server", program, c.dir); err != nil {
		t.Fatal(err)
	}
	return program
}

// environment has the JVMs of a kind follow that kind's clock.
func (c *clocks) environment(kind string) []string {
	clock, ok := c.flink[kind]
	if !ok || c.preload == "" {
		return nil
	}
	return []string{"LD_PRELOAD=" + c.preload, clock.Environment()}
}

// clockFaults set clocks forward and back, by up to five hours, and right again.
func (c *campaign) clockFaults(clocks *clocks) []fault {
	jump := func() time.Duration {
		return time.Duration(c.random.IntN(36_000)-18_000) * time.Second
	}
	faults := []fault{{name: "clock of the server jumps", of: "clock of the server", long: true, strike: func() (func() error, error) {
		return func() error { return clocks.server.Shift(0) }, clocks.server.Shift(jump())
	}}}
	if clocks.missing != nil {
		c.leaveOut("clocks of Flink's processes", clocks.missing)
		return faults
	}
	for _, name := range []string{"JobManager", "TaskManager"} { // in this order: it belongs to what a seed repeats
		clock := clocks.flink[strings.ToLower(name)]
		faults = append(faults, fault{name: "clock of each " + name + " jumps", of: "clock of the " + name, long: true, strike: func() (func() error, error) {
			return func() error { return clock.Shift(0) }, clock.Shift(jump())
		}})
	}
	return faults
}

// TestClockOfServerJumps sets the server's clock forward and back under a job. No session ends for it: the job
// never restarts. And what ends, ends in its time: a TaskManager's sessions after its death.
func TestClockOfServerJumps(t *testing.T) {
	dir := t.TempDir()
	clocks := newClocks(t, dir)
	e := newEnvironmentFor(t, 10*time.Minute, clocks.buildServer(t), "", flinkcluster.Options{TaskManagers: 1, Slots: 2, Config: map[string]string{
		"state.backend.ndb.reconnect-timeout": "20 s",
		"state.backend.ndb.session-lease":     "30 s",
	}}, "--sweep-interval", "200ms")
	l := ledger{keys: 300, records: 100_000, rate: 2_000}
	job := e.submit(e.upload(), l.run(2))
	e.awaitRunning(job)
	for _, shift := range []time.Duration{time.Hour, -2 * time.Hour, 72 * time.Hour, 0} {
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		e.must(clocks.server.Shift(shift))
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 6)) // ten passes of the sweeper and more
	}
	restarts, err := e.cluster.Restarts(e.ctx, job)
	e.must(err)
	if restarts != 0 {
		t.Errorf("the job restarted %d times because the clock jumped", restarts)
	}
	e.must(clocks.server.Shift(-time.Hour))
	e.must(e.cluster.TaskManagers()[0].Kill())
	e.must(e.cluster.AwaitTaskManagers(e.ctx, 0))
	e.must(flinkcluster.Poll(e.ctx, 2*time.Minute, "sessions that end", func() bool {
		sessions, err := e.sessions()
		return err == nil && len(sessions) == 0
	}))
	_, err = e.cluster.AddTaskManager()
	e.must(err)
	e.awaitFinished(job)
	e.verify(l)
	e.checkGarbage()
}
