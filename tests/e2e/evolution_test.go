//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

var evolvedLine = regexp.MustCompile(`EVOLVED (\d+) (-?\d+) (-?\d+)`)

// TestSchemaEvolution stops a job and starts its second release, whose POJO has lost a field and won others, and
// whose Avro schema has a field more, from a savepoint of either format and from a retained checkpoint. The job
// checks its state at each record; a TaskManager is killed after the migration.
func TestSchemaEvolution(t *testing.T) {
	const keys, records = 200, 100_000
	for _, from := range []string{"NATIVE", "CANONICAL", "checkpoint"} {
		t.Run(from, func(t *testing.T) {
			e := newEnvironment(t, flinkcluster.Options{TaskManagers: 1, Slots: 2})
			run := flinkcluster.Run{
				EntryClass: "org.flinkndb.evolution.EvolutionJob", Parallelism: 2,
				Args: []string{"--keys", strconv.Itoa(keys), "--records", strconv.Itoa(records), "--rate", "3000"},
			}
			job := e.submit(e.uploadEvolution("first"), run)
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 3))
			run.SavepointPath = e.stopForUpgrade(job, from)
			job = e.submit(e.uploadEvolution("second"), run)
			e.awaitRunning(job)
			e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
			e.replaceTaskManager()
			e.awaitFinished(job)
			e.verifyEvolved(keys, records)
		})
	}
}

// stopForUpgrade stops a job with a savepoint in a format, or leaves a retained checkpoint, and returns its path.
func (e *environment) stopForUpgrade(job, format string) string {
	e.t.Helper()
	if format == "checkpoint" {
		return e.cancelWithCheckpoint(job)
	}
	path, err := e.cluster.Savepoint(e.ctx, job, format, true)
	e.must(err)
	return path
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
	found := e.results(evolvedLine)
	for _, match := range found {
		if match[2] != fmt.Sprint(records/keys) {
			e.t.Errorf("%s, expected count %d", match[0], records/keys)
		}
		since, err := strconv.Atoi(match[3])
		e.must(err)
		if since < keys {
			e.t.Errorf("%s: the second release has not found what the first one wrote", match[0])
		}
	}
	if len(found) != keys {
		e.t.Fatalf("%d keys have results, expected %d", len(found), keys)
	}
}
