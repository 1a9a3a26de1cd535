package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
	"github.com/flinkndb/flinkndb/tests/ndb"
	"github.com/flinkndb/flinkndb/tests/stateserver"
)

// session is a Flink cluster with one backend and all that the backend needs.
type session struct {
	dir      string
	database *ndb.Cluster
	server   *stateserver.Server
	cluster  *flinkcluster.Cluster
	jar      string // uploaded
}

// start starts a session with so many TaskManagers and a checkpoint interval.
func (p *plan) start(ctx context.Context, backend string, taskManagers int, interval string) (s *session, err error) {
	s = &session{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "fcmp"); err != nil {
		return s, fmt.Errorf("working folder: %w", err)
	}
	config := map[string]string{
		"execution.checkpointing.interval":    interval,
		"execution.checkpointing.incremental": "true", // RocksDB's best
		"state.backend.type":                  backend,
		"pipeline.object-reuse":               "false",
		"taskmanager.memory.network.min":      "128m",
		"taskmanager.memory.network.max":      "128m",
		"web.refresh-interval":                "100", // so that REST tells at once when a job has ended
		"web.checkpoints.history":             "1000",
		"traces.reporters":                    "slf4j",
		"traces.reporter.slf4j.factory.class": "org.apache.flink.traces.slf4j.Slf4jTraceReporterFactory",
	}
	switch backend {
	case "rocksdb", "forst":
		config["taskmanager.memory.managed.fraction"] = "0.4" // Flink's default; for the others the heap is what counts
	case embedded, onCluster:
		if err := s.startServer(ctx, backend); err != nil {
			return s, err
		}
		config["state.backend.type"] = "org.flinkndb.NdbStateBackendFactory"
		config["state.backend.ndb.address"] = s.server.Address()
	}
	if backend == "forst" {
		config["table.exec.async-state.enabled"] = "true"
	}
	home, err := filepath.Abs(p.home)
	if err != nil {
		return s, fmt.Errorf("-flink: %w", err)
	}
	s.cluster, err = flinkcluster.Start(ctx, flinkcluster.Options{
		Home: home, Dir: filepath.Join(s.dir, "flink"), Jars: []string{"dist/flinkndb-flink-2.jar"},
		TaskManagers: taskManagers, Slots: p.parallelism, TaskManagerMemory: p.memory, Config: config,
	})
	if err != nil {
		return s, err
	}
	s.jar, err = s.cluster.Upload(ctx, "dist/flinkndb-testjobs.jar")
	return s, err
}

func (s *session) startServer(ctx context.Context, backend string) (err error) {
	store := ""
	if backend == onCluster {
		s.database, err = ndb.Start(ctx, ndb.Options{Dir: filepath.Join(s.dir, "ndb"), DataNodes: 1, Replicas: 1, MySQLServers: 1, DataMemory: "3G"})
		if err != nil {
			return err
		}
		store = s.database.URL()
	}
	binary, err := filepath.Abs("dist/flinkndb")
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	s.server, err = stateserver.Start(ctx, binary, filepath.Join(s.dir, "s"), store)
	return err
}

// stop ends all processes and removes what they left.
func (s *session) stop() error {
	var errs []error
	if s.cluster != nil {
		errs = append(errs, s.cluster.Stop())
	}
	if s.server != nil {
		errs = append(errs, s.server.Stop())
	}
	if s.database != nil {
		errs = append(errs, s.database.KillAll())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// awaitCleanUp waits until the state of the jobs that have ended is removed, so that its removal does not slow down the
// next job, and says how long that took. Flink's own backends have nothing to wait for: they delete files.
func (s *session) awaitCleanUp(ctx context.Context) (seconds float64, err error) {
	if s.server == nil {
		return 0, nil
	}
	begin := time.Now()
	var last error
	err = flinkcluster.Poll(ctx, 10*time.Minute, "the removal of the job's state", func() bool {
		last = s.server.CheckEmpty(ctx)
		return last == nil
	})
	if err != nil {
		err = errors.Join(err, last)
	}
	return time.Since(begin).Seconds(), err
}
