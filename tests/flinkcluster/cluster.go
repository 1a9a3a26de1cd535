// Package flinkcluster runs real Flink clusters on the loopback interface, as child processes, for
// tests and the demo.
package flinkcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/flinkndb/flinkndb/tests/freeport"
)

// Options say what cluster to run.
type Options struct {
	// Home is a Flink distribution.
	Home string
	// Dir takes configuration, logs and checkpoints. It is made.
	Dir string
	// Jars are added to lib/.
	Jars []string
	// Config is added to, and wins over, the defaults; an empty value leaves a key out.
	Config map[string]string
	// TaskManagers is how many to start with. The default value is 1.
	TaskManagers int
	// Slots of each TaskManager. The default value is 2.
	Slots int
	// HighAvailability runs a ZooKeeper (the distribution's own), so that jobs outlive their JobManager.
	HighAvailability bool
	// TaskManagerMemory is taskmanager.memory.process.size. The default value is 1200m.
	TaskManagerMemory string
	// Environment says what to add to the environment of processes of a kind: "jobmanager", "taskmanager", "zookeeper".
	Environment func(kind string) []string
}

// Cluster is a running cluster. Methods may be called concurrently.
type Cluster struct {
	*Client
	opt     Options
	libDir  string
	confDir string

	mu        sync.Mutex
	zookeeper *Process
	master    *Process
	managers  []*Process
	started   int
}

// Start starts a cluster and waits until it is ready.
func Start(ctx context.Context, opt Options) (*Cluster, error) {
	if opt.TaskManagers == 0 {
		opt.TaskManagers = 1
	}
	if opt.Slots == 0 {
		opt.Slots = 2
	}
	if opt.TaskManagerMemory == "" {
		opt.TaskManagerMemory = "1200m"
	}
	ports, err := freeport.Several(5)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		opt: opt, libDir: filepath.Join(opt.Dir, "lib"), confDir: filepath.Join(opt.Dir, "conf"),
		Client: NewClient(fmt.Sprintf("http://127.0.0.1:%d", ports[0])),
	}
	if err := c.prepare(ports); err != nil {
		return nil, err
	}
	if opt.HighAvailability {
		if c.zookeeper, err = c.start("zookeeper", "zookeeper.sh", "1"); err != nil {
			return nil, err
		}
	}
	if err := c.StartJobManager(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	for range opt.TaskManagers {
		if _, err := c.AddTaskManager(); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	if err := c.AwaitTaskManagers(ctx, opt.TaskManagers); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// prepare lays out lib/ (links) and conf/.
func (c *Cluster) prepare(ports []int) error {
	for _, dir := range []string{c.libDir, c.confDir, c.CheckpointDir(), filepath.Join(c.opt.Dir, "log"), filepath.Join(c.opt.Dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("prepare the cluster: %w", err)
		}
	}
	jars, err := filepath.Glob(filepath.Join(c.opt.Home, "lib", "*.jar"))
	if err != nil || len(jars) == 0 {
		return fmt.Errorf("no Flink in %s: run scripts/install-flink", c.opt.Home)
	}
	for _, jar := range append(jars, c.opt.Jars...) {
		absolute, err := filepath.Abs(jar)
		if err != nil {
			return fmt.Errorf("jar %s: %w", jar, err)
		}
		if err := os.Symlink(absolute, filepath.Join(c.libDir, filepath.Base(jar))); err != nil {
			return fmt.Errorf("link %s: %w", jar, err)
		}
	}
	logging, err := filepath.Glob(filepath.Join(c.opt.Home, "conf", "log*"))
	if err != nil {
		return fmt.Errorf("logging configuration: %w", err)
	}
	for _, file := range logging {
		if err := os.Symlink(file, filepath.Join(c.confDir, filepath.Base(file))); err != nil {
			return fmt.Errorf("link %s: %w", file, err)
		}
	}
	if c.opt.HighAvailability {
		if err := c.prepareHighAvailability(ports[2:]); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(c.confDir, "config.yaml"), []byte(c.config(ports)), 0o644)
}

// prepareHighAvailability writes ZooKeeper's configuration and adds what Flink needs to use it.
func (c *Cluster) prepareHighAvailability(ports []int) error {
	zoo := fmt.Sprintf("tickTime=2000\ninitLimit=10\nsyncLimit=5\nadmin.enableServer=false\ndataDir=%s\n"+
		"clientPort=%d\nclientPortAddress=127.0.0.1\nserver.1=127.0.0.1:%d:%d\n",
		filepath.Join(c.opt.Dir, "zookeeper"), ports[0], ports[1], ports[2])
	if err := os.WriteFile(filepath.Join(c.confDir, "zoo.cfg"), []byte(zoo), 0o644); err != nil {
		return fmt.Errorf("configuration of ZooKeeper: %w", err)
	}
	config := map[string]string{
		"high-availability.type":                             "zookeeper",
		"high-availability.zookeeper.quorum":                 fmt.Sprintf("127.0.0.1:%d", ports[0]),
		"high-availability.zookeeper.path.root":              "/flink",
		"high-availability.zookeeper.client.session-timeout": "5000",
		"high-availability.storageDir":                       "file://" + filepath.Join(c.opt.Dir, "ha"),
	}
	for key, value := range c.opt.Config {
		config[key] = value
	}
	c.opt.Config = config
	return nil
}

func (c *Cluster) config(ports []int) string {
	settings := map[string]string{
		"jobmanager.rpc.address":                "127.0.0.1",
		"jobmanager.bind-host":                  "127.0.0.1",
		"jobmanager.rpc.port":                   fmt.Sprint(ports[1]),
		"jobmanager.memory.process.size":        "800m",
		"rest.address":                          "127.0.0.1",
		"rest.bind-address":                     "127.0.0.1",
		"rest.port":                             fmt.Sprint(ports[0]),
		"taskmanager.host":                      "127.0.0.1",
		"taskmanager.bind-host":                 "127.0.0.1",
		"taskmanager.memory.process.size":       c.opt.TaskManagerMemory,
		"taskmanager.memory.managed.fraction":   "0.1",
		"taskmanager.numberOfTaskSlots":         fmt.Sprint(c.opt.Slots),
		"taskmanager.memory.network.max":        "64m",
		"execution.checkpointing.dir":           "file://" + c.CheckpointDir(),
		"execution.checkpointing.savepoint-dir": "file://" + filepath.Join(c.opt.Dir, "savepoints"),
		"io.tmp.dirs":                           filepath.Join(c.opt.Dir, "tmp"),
		"heartbeat.interval":                    "1000",
		"heartbeat.timeout":                     "10000",
		"restart-strategy.type":                 "fixed-delay",
		"restart-strategy.fixed-delay.attempts": "1000000",
		"restart-strategy.fixed-delay.delay":    "500 ms",
		// Flink's own defaults for Java 17 stand in the configuration of the distribution.
		"env.java.opts.all": defaultJavaOptions(c.opt.Home),
	}
	for key, value := range c.opt.Config {
		if value == "" {
			delete(settings, key)
			continue
		}
		settings[key] = value
	}
	keys := make([]string, 0, len(settings))
	for key := range settings {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var out strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&out, "%s: %q\n", key, settings[key])
	}
	return out.String()
}

// defaultJavaOptions reads env.java.opts.all from the distribution's configuration.
func defaultJavaOptions(home string) string {
	raw, err := os.ReadFile(filepath.Join(home, "conf", "config.yaml"))
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(raw), "\n") {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "all:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// CheckpointDir is where Flink keeps the metadata of checkpoints.
func (c *Cluster) CheckpointDir() string { return filepath.Join(c.opt.Dir, "checkpoints") }

// StartJobManager starts the JobManager (again) and waits for its REST endpoint.
func (c *Cluster) StartJobManager(ctx context.Context) error {
	p, err := c.start("jobmanager", "jobmanager.sh")
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.master = p
	c.mu.Unlock()
	return c.AwaitREST(ctx, p)
}

// Pids are the process ids of the JobManager and the TaskManagers.
func (c *Cluster) Pids() []int {
	var pids []int
	for _, p := range append(c.TaskManagers(), c.JobManager()) {
		pids = append(pids, p.Pid())
	}
	return pids
}

// JobManager is the running JobManager.
func (c *Cluster) JobManager() *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.master
}

// AddTaskManager starts one more TaskManager.
func (c *Cluster) AddTaskManager() (*Process, error) {
	p, err := c.start("taskmanager", "taskmanager.sh")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.managers = append(c.managers, p)
	return p, nil
}

// TaskManagers are those that run.
func (c *Cluster) TaskManagers() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	var running []*Process
	for _, p := range c.managers {
		if p.Running() {
			running = append(running, p)
		}
	}
	return running
}

func (c *Cluster) start(kind, script string, args ...string) (*Process, error) {
	c.mu.Lock()
	c.started++
	name := fmt.Sprintf("%s-%d", kind, c.started)
	c.mu.Unlock()
	out, err := os.Create(filepath.Join(c.opt.Dir, "log", name+".out"))
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", name, err)
	}
	cmd := exec.Command(filepath.Join(c.opt.Home, "bin", script), append([]string{"start-foreground"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = c.environment()
	if c.opt.Environment != nil {
		cmd.Env = append(cmd.Env, c.opt.Environment(kind)...)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that the script and its JVM die together
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), out.Close())
	}
	p := &Process{name: name, out: out.Name(), cmd: cmd, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in its output
		_ = out.Close()
		close(p.ended)
	}()
	return p, nil
}

// environment tells Flink's scripts where this cluster has its files.
func (c *Cluster) environment() []string {
	return append(os.Environ(), "FLINK_CONF_DIR="+c.confDir, "FLINK_LIB_DIR="+c.libDir, "FLINK_LOG_DIR="+filepath.Join(c.opt.Dir, "log"))
}

// Output returns everything that the processes of a kind have printed.
func (c *Cluster) Output(kind string) (string, error) {
	files, err := filepath.Glob(filepath.Join(c.opt.Dir, "log", kind+"-*.out"))
	if err != nil {
		return "", fmt.Errorf("outputs: %w", err)
	}
	var all strings.Builder
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("output: %w", err)
		}
		all.Write(raw)
	}
	return all.String(), nil
}

// Stop kills everything. Nothing of the cluster is left but its folder.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	all := append([]*Process{}, c.managers...)
	for _, p := range []*Process{c.master, c.zookeeper} {
		if p != nil {
			all = append(all, p)
		}
	}
	c.mu.Unlock()
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Kill())
	}
	return errors.Join(errs...)
}

// Process is one JVM of the cluster.
type Process struct {
	name  string
	out   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// Name tells it from the others.
func (p *Process) Name() string { return p.name }

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Running says whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Kill ends the process at once (SIGKILL) and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.ended
	return nil
}

// Signal sends a signal to the process and its children.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.name, err)
	}
	return nil
}

// Tail returns the last part of its output.
func (p *Process) Tail() string {
	output, err := p.Output()
	if err != nil {
		return err.Error()
	}
	return output[max(0, len(output)-4000):]
}

// Output returns everything that the process has printed.
func (p *Process) Output() (string, error) {
	raw, err := os.ReadFile(p.out)
	if err != nil {
		return "", fmt.Errorf("output: %w", err)
	}
	return string(raw), nil
}

// Poll waits until a condition holds, and fails when it does not within the time.
func Poll(ctx context.Context, timeout time.Duration, what string, condition func() bool) error {
	return poll(ctx, timeout, what, func(context.Context) (bool, error) { return condition(), nil })
}

// poll calls fn until it says yes, fails, or the time is over.
func poll(ctx context.Context, timeout time.Duration, what string, fn func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		done, err := fn(ctx)
		if done {
			return err
		}
		if err != nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %v (last: %v): %w", what, timeout, last, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
