//go:build e2e

// Package e2e runs jobs on real Flink clusters over a real server, kills things, and demands exact
// results. `make test` runs it; by hand: go test -tags e2e ./tests/e2e -run TestName -v
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

const (
	root     = "../.."
	flink2   = "2.3.0"
	flink120 = "1.20.5"
)

// firstServer stands, in a configuration, for the address of the environment's server.
const firstServer = "${server}"

// environment is a cluster with our backend and its server.
type environment struct {
	t       *testing.T
	ctx     context.Context
	cluster *flinkcluster.Cluster
	server  *stateserver.Server
	config  map[string]string // of Flink
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	result, err := filepath.Abs(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// flinkHome is the distribution that tests run on unless they ask for another.
func flinkHome(t *testing.T) string {
	if home := os.Getenv("FLINK_HOME"); home != "" {
		return home
	}
	return flinkVersion(t, flink2)
}

func flinkVersion(t *testing.T, version string) string {
	return absolute(t, ".cache/flink/"+version+"/pyflink")
}

// shimFor is the shim's jar for a distribution.
func shimFor(t *testing.T, home string) string {
	return flinkcluster.Shim(absolute(t, "dist"), home)
}

// newEnvironment starts a server over an embedded store, and a cluster; both end with the test.
func newEnvironment(t *testing.T, opt flinkcluster.Options, serverFlags ...string) *environment {
	t.Helper()
	return newEnvironmentOn(t, "", opt, serverFlags...)
}

// newEnvironmentOn is newEnvironment with another store.
func newEnvironmentOn(t *testing.T, store string, opt flinkcluster.Options, serverFlags ...string) *environment {
	t.Helper()
	return newEnvironmentFor(t, 10*time.Minute, absolute(t, "dist/flinkndb"), store, opt, serverFlags...)
}

// newEnvironmentFor is newEnvironmentOn for a test that takes longer, with a server built in another way.
func newEnvironmentFor(t *testing.T, limit time.Duration, binary, store string, opt flinkcluster.Options, serverFlags ...string) *environment {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	// Unix sockets have short names, test folders long ones.
	dir, err := os.MkdirTemp("", "fndb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := stateserver.Start(ctx, binary, filepath.Join(dir, "s"), store, serverFlags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if opt.Home == "" {
		opt.Home = flinkHome(t)
	}
	opt.Dir = filepath.Join(dir, "flink")
	opt.Jars = append(opt.Jars, shimFor(t, opt.Home))
	config := map[string]string{
		"state.backend.type":                                        "org.flinkndb.NdbStateBackendFactory",
		"state.backend.ndb.address":                                 server.Address(),
		"execution.checkpointing.interval":                          "500 ms",
		"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
	}
	for key, value := range opt.Config {
		config[key] = strings.ReplaceAll(value, firstServer, server.Address())
	}
	opt.Config = config
	cluster, err := flinkcluster.Start(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	e := &environment{t: t, ctx: ctx, cluster: cluster, server: server, config: config}
	t.Cleanup(func() {
		if t.Failed() {
			e.dump()
		}
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// dump shows what the processes said when a test failed.
func (e *environment) dump() {
	raw, err := os.ReadFile(e.server.LogFile())
	e.t.Logf("server log (%v):\n%s", err, raw[max(0, len(raw)-6000):])
	for _, p := range append(e.cluster.TaskManagers(), e.cluster.JobManager()) {
		e.t.Logf("%s:\n%s", p.Name(), p.Tail())
	}
}

func (e *environment) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// ledger is what a run of the ledger job is to come to.
type ledger struct {
	keys, records, rate int
	payload             int // bytes of each key's ballast; 0 stands for 100
}

func (l ledger) run(parallelism int) flinkcluster.Run {
	return flinkcluster.Run{
		EntryClass: "org.flinkndb.testjobs.LedgerJob",
		Args: []string{"--keys", strconv.Itoa(l.keys), "--records", strconv.Itoa(l.records),
			"--rate", strconv.Itoa(l.rate), "--payload", strconv.Itoa(cmp.Or(l.payload, 100))},
		Parallelism: parallelism,
	}
}

func (e *environment) upload() string {
	e.t.Helper()
	jar, err := e.cluster.Upload(e.ctx, absolute(e.t, "dist/flinkndb-testjobs.jar"))
	e.must(err)
	return jar
}

func (e *environment) submit(jar string, run flinkcluster.Run) string {
	e.t.Helper()
	id, err := e.cluster.Submit(e.ctx, jar, run)
	e.must(err)
	return id
}

func (e *environment) awaitRunning(job string) {
	e.t.Helper()
	e.must(e.cluster.AwaitJob(e.ctx, job, 2*time.Minute, "running", (*flinkcluster.Job).Running))
}

func (e *environment) awaitFinished(job string) {
	e.t.Helper()
	e.must(e.cluster.AwaitJob(e.ctx, job, 5*time.Minute, "finished", func(j *flinkcluster.Job) bool { return j.State == "FINISHED" }))
}

// replaceTaskManager kills the first TaskManager and starts another one.
func (e *environment) replaceTaskManager() {
	e.t.Helper()
	e.must(e.cluster.TaskManagers()[0].Kill())
	_, err := e.cluster.AddTaskManager()
	e.must(err)
}

// results finds what a job printed for each key, which is a pattern's first group; the matches are returned by key.
// A line may come twice when the job was restored after printing it, but never with other figures. A violation
// that the job reported fails the test.
func (e *environment) results(pattern *regexp.Regexp) map[string][]string {
	e.t.Helper()
	output, err := e.cluster.Output("taskmanager")
	e.must(err)
	if i := strings.Index(output, "VIOLATION"); i >= 0 {
		e.t.Fatalf("%.300s", output[i:])
	}
	found := map[string][]string{}
	for _, match := range pattern.FindAllStringSubmatch(output, -1) {
		if old, known := found[match[1]]; known && old[0] != match[0] {
			e.t.Fatalf("key %s has two results: %s and %s", match[1], old[0], match[0])
		}
		found[match[1]] = match
	}
	return found
}

var ledgerLine = regexp.MustCompile(`LEDGER (\d+) (\d+) (\d+) (\d+)`)

// verify compares what the job printed with what must be: each number counted once.
func (e *environment) verify(l ledger) {
	e.t.Helper()
	found := e.results(ledgerLine)
	if len(found) != l.keys {
		e.t.Fatalf("%d keys have results, expected %d", len(found), l.keys)
	}
	for name, match := range found {
		key, err := strconv.Atoi(name)
		e.must(err)
		count := (l.records - key + l.keys - 1) / l.keys
		sum := count*key + l.keys*count*(count-1)/2
		if want := fmt.Sprintf("LEDGER %d %d %d %d", key, count, sum, count); match[0] != want {
			e.t.Fatalf("found %s, expected %s", match[0], want)
		}
	}
}
