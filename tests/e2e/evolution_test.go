//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

var evolvedLine = regexp.MustCompile(`EVOLVED (\d+) (-?\d+) (-?\d+)`)

// TestSchemaEvolution stops a job and starts its second release, whose POJO has lost a field and won others, and
// whose Avro schema has a field more, from a savepoint of either format and from a retained checkpoint. The job
// checks its state at each record; a TaskManager is killed after the migration.
func TestSchemaEvolution(t *testing.T) {
	const keys, records = 200, 100_000
	stop := map[string]func(e *environment, job string) string{
		"checkpoint": (*environment).cancelWithCheckpoint,
	}
	for _, format := range []string{"NATIVE", "CANONICAL"} {
		stop[format] = func(e *environment, job string) string {
			path, err := e.cluster.Savepoint(e.ctx, job, format, true)
			e.must(err)
			return path
		}
	}
	for name, stopped := range stop {
		t.Run(name, func(t *testing.T) {
			e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 2})
			run := flinkcluster.Run{
				EntryClass: "org.flinkndb.evolution.EvolutionJob", Parallelism: 2,
				Args: []string{"--keys", strconv.Itoa(keys), "--records", strconv.Itoa(records), "--rate", "3000"},
			}
			job := e.submit(e.uploadEvolution("first"), run)
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 3))
			run.SavepointPath = stopped(e, job)
			job = e.submit(e.uploadEvolution("second"), run)
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
			e.must(e.cluster.TaskManagers()[0].Kill())
			_, err := e.cluster.AddTaskManager()
			e.must(err)
			e.awaitFinished(job)
			e.verifyEvolved(keys, records)
		})
	}
}

func (e *environment) uploadEvolution(release string) string {
	e.t.Helper()
	jar, err := e.cluster.Upload(e.ctx, absolute(e.t, "dist/flinkndb-evolution-"+release+".jar"))
	e.must(err)
	return jar
}

// verifyEvolved demands that each key counted all of its numbers, and that the second release found what the
// first one had counted.
func (e *environment) verifyEvolved(keys, records int) {
	e.t.Helper()
	output, err := e.cluster.Output("taskmanager")
	e.must(err)
	if i := strings.Index(output, "VIOLATION"); i >= 0 {
		e.t.Fatalf("%.300s", output[i:])
	}
	found := map[string]string{}
	for _, m := range evolvedLine.FindAllStringSubmatch(output, -1) {
		key, count := m[1], m[2]
		if old, known := found[key]; known && old != m[0] {
			e.t.Fatalf("key %s has two results: %s and %s", key, old, m[0])
		}
		found[key] = m[0]
		if count != fmt.Sprint(records/keys) {
			e.t.Errorf("%s, expected count %d", m[0], records/keys)
		}
		since, err := strconv.Atoi(m[3])
		e.must(err)
		if since < keys {
			e.t.Errorf("%s: the second release has not found what the first one wrote", m[0])
		}
	}
	if len(found) != keys {
		e.t.Fatalf("%d keys have results, expected %d", len(found), keys)
	}
}
