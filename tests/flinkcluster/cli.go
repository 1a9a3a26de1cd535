package flinkcluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// DisposeByCommand runs `flink savepoint --dispose`, in a process of its own with the cluster's configuration.
func (c *Cluster) DisposeByCommand(ctx context.Context, path string) error {
	_, err := c.flink(ctx, nil, "savepoint", "--dispose", path, "--jobmanager", c.address())
	return err
}

// address is what Flink's commands call the JobManager.
func (c *Cluster) address() string { return c.base[len("http://"):] }

// flink runs Flink's own client, as users do, and returns what it printed.
func (c *Cluster) flink(ctx context.Context, environment []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.opt.Home, "bin", "flink"), args...)
	cmd.Env = append(c.environment(), environment...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("flink %s: %w:\n%s", args[0], err, out)
	}
	return out, nil
}
