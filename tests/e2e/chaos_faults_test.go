//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/flinkndb/flinkndb/tests/faultproxy"
	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/ndb"
	"github.com/flinkndb/flinkndb/tests/smalldisk"
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

// processFaults strike Flink and the server.
func (c *campaign) processFaults() []fault {
	manager := func() (*flinkcluster.Process, error) {
		running := c.cluster.TaskManagers()
		if len(running) == 0 {
			return nil, errors.New("no TaskManager runs")
		}
		return running[c.random.IntN(len(running))], nil
	}
	return []fault{
		{name: "TaskManager killed", of: "TaskManager", strike: func() (func() error, error) {
			killed, err := manager()
			if err != nil {
				return nil, err
			}
			return func() error { _, err := c.cluster.AddTaskManager(); return err }, killed.Kill()
		}},
		{name: "TaskManager frozen", of: "TaskManager", long: true, strike: func() (func() error, error) {
			frozen, err := manager()
			if err != nil {
				return nil, err
			}
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
	}
}

// networkFaults strike what is between Flink and the server.
func (c *campaign) networkFaults() []fault {
	nothing := func() error { return nil }
	return []fault{
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
		{name: "network lossy", of: "network", long: true, strike: func() (func() error, error) {
			c.proxy.Lose(&faultproxy.Loss{Repeated: 0.02, Pause: 400 * time.Millisecond, Broken: 0.0005 * float64(1+c.random.IntN(4))})
			return func() error { c.proxy.Lose(nil); return nil }, nil
		}},
		{name: "connections half-open", of: "network", strike: func() (func() error, error) {
			c.proxy.Vanish()
			return nothing, nil
		}},
	}
}

// diskFaults fill the disk of an embedded store. The server goes on as long as it needs no more room; when it ends,
// it is started again once there is some.
func (c *campaign) diskFaults(disk *smalldisk.Disk) []fault {
	amend := func() error {
		if err := disk.Free(); err != nil || c.server.Running() {
			return err
		}
		c.seen["server ended by a full disk"]++
		return c.server.Restart(c.ctx)
	}
	return []fault{
		{name: "disk full", of: "server", long: true, strike: func() (func() error, error) {
			return amend, disk.Fill()
		}},
		{name: "server killed, and its disk full", of: "server", strike: func() (func() error, error) {
			if err := errors.Join(c.server.Kill(), disk.Fill()); err != nil {
				return nil, err
			}
			// It may start when opening the store removes files that it no longer needs.
			if err := c.server.Restart(c.ctx); err != nil && (!strings.Contains(err.Error(), c.server.StoreDir()) || !strings.Contains(err.Error(), "no space left")) {
				return nil, fmt.Errorf("the server does not say which disk is full: %w", err)
			}
			return amend, nil
		}},
	}
}

// databaseFaults leave one of each two processes alone, which is what two replicas are for. A campaign by hand takes
// all once in a while: the restart of a whole database takes 20 seconds on an idle machine, which no short campaign has
// to spare on a busy one; TestAllOfNDBIsLost has one.
func (c *campaign) databaseFaults(database *ndb.Cluster) []fault {
	nodes := database.DataNodeIDs()
	faults := []fault{
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
	}
	if os.Getenv(chaosMinutes) == "" {
		c.leaveOut("whole database killed", errors.New("not in a short campaign"))
		return faults
	}
	return append(faults, fault{name: "whole database killed", of: "database", strike: func() (func() error, error) {
		return func() error { return database.Restart(c.ctx) }, database.KillAll()
	}})
}
