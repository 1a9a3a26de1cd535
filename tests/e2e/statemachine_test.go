//go:build e2e

package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

const stateMachine = "org.apache.flink.streaming.examples.statemachine.StateMachineExample"

// TestStateMachineExample runs Flink's published example as it is. It follows a state machine for each
// key and prints an alert for an impossible transition: without errors in its input, an alert means
// that state was lost or counted twice. First, with errors, it shows that alerts would be seen.
func TestStateMachineExample(t *testing.T) {
	t.Run("2", func(t *testing.T) { testStateMachine(t, flink2, "examples-2.3.0.jar", 6) })
	t.Run("1.20", func(t *testing.T) { testStateMachine(t, flink120, "examples-1.20.0.jar", 2) })
}

func testStateMachine(t *testing.T, version, examples string, kills int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	e := newEnvironment(t, flinkcluster.Options{Home: flinkVersion(t, version), TaskManagers: 2, Slots: 1})
	jar, err := e.cluster.Upload(e.ctx, absolute(t, ".cache/flink/"+examples))
	e.must(err)

	faulty := e.submit(jar, stateMachineRun("0.1"))
	e.awaitRunning(faulty)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, faulty, 1))
	e.awaitAlerts()
	e.must(e.cluster.Cancel(e.ctx, faulty))
	before := e.alerts()

	job := e.submit(jar, stateMachineRun("0.0"))
	for kill := range kills {
		e.awaitRunning(job)
		e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 2))
		time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond) // the moment is to be random
		e.killSomething(random, kill)
	}
	e.awaitRunning(job)
	e.must(e.cluster.AwaitCheckpoints(e.ctx, job, 3))
	e.must(e.cluster.Cancel(e.ctx, job))
	if after := e.alerts(); after != before {
		t.Fatalf("%d alerts without errors in the input", after-before)
	}
}

// stateMachineRun keeps the rate low. The example's generator forgets its keys when it is restarted and draws
// new ones from 2^31: it may draw one that is in the state from before, in the middle of its states, which is an
// alert on any backend. At 10,000 records a second that happens in one run out of four, at this rate in one out
// of hundreds, while a lost epoch is still tens of alerts. TestKillTaskManagersAndServer has the load.
func stateMachineRun(errorRate string) flinkcluster.Run {
	return flinkcluster.Run{
		EntryClass:  stateMachine,
		Args:        []string{"--error-rate", errorRate, "--rps", "100"},
		Parallelism: 2,
	}
}

// alerts counts the alerts printed so far.
func (e *environment) alerts() int {
	e.t.Helper()
	output, err := e.cluster.Output("taskmanager")
	e.must(err)
	return strings.Count(output, "ALERT ")
}

func (e *environment) awaitAlerts() {
	e.t.Helper()
	e.must(flinkcluster.Poll(e.ctx, time.Minute, "an alert", func() bool { return e.alerts() > 0 }))
}

// killSomething kills a TaskManager (and starts another) or the server (and starts it again), in turn.
func (e *environment) killSomething(random *rand.Rand, turn int) {
	e.t.Helper()
	if turn%2 == 0 {
		managers := e.cluster.TaskManagers()
		victim := managers[random.IntN(len(managers))]
		e.t.Logf("kill %s", victim.Name())
		e.must(victim.Kill())
		_, err := e.cluster.AddTaskManager()
		e.must(err)
		return
	}
	e.t.Log("kill the server")
	e.must(e.server.Kill())
	e.must(e.server.Restart(e.ctx))
}
