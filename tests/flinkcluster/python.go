package flinkcluster

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
)

var submittedJob = regexp.MustCompile(`JobID ([0-9a-f]{32})`)

// SubmitPython runs a PyFlink job with Flink's own client, as users do, and returns the job's id.
func (c *Cluster) SubmitPython(ctx context.Context, python, script string, config map[string]string, args ...string) (string, error) {
	command := []string{"run", "--detached", "--jobmanager", c.address(), "-pyexec", python, "-pyclientexec", python}
	for key, value := range config {
		command = append(command, "-D"+key+"="+value)
	}
	command = append(append(command, "--python", script), args...)
	out, err := c.flink(ctx, []string{"PYTHONPATH=" + filepath.Dir(c.opt.Home)}, command...)
	if err != nil {
		return "", fmt.Errorf("%s: %w", script, err)
	}
	found := submittedJob.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("flink run %s named no job:\n%s", script, out)
	}
	return string(found[1]), nil
}
