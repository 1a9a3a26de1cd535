//go:build e2e

package e2e

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// TestKillTaskManagersAndServer kills one of two TaskManagers or the server at random moments, and
// the job must come to exactly the right result.
func TestKillTaskManagersAndServer(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := newEnvironment(t, flinkcluster.Options{TaskManagers: 2, Slots: 1})
	l := ledger{keys: 1000, records: 600_000, rate: 5_000}
	job := e.submit(e.upload(), l.run(2))
	for kill := range 6 {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) // the moment is to be random
		e.killSomething(random, kill)
	}
	e.awaitFinished(job)
	e.verify(l)
}
