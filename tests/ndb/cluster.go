package ndb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/flinkndb/flinkndb/tests/freeport"
)

// Cluster is a running (or killed) NDB cluster. Methods are not for concurrent use, except that
// reading (URL, Status) is always allowed.
type Cluster struct {
	opts   Options
	layout layout
	bin    Binaries
	mgmd   *process
	data   []*process // data node i has node id firstDataNode+i
	sql    []*process
}

// saved is the content of cluster.json, which lets another process stop the cluster.
type saved struct {
	Options  Options
	Layout   layout
	Binaries Binaries
	Pids     map[string]int
}

const stateFile = "cluster.json"

// Start creates a new cluster in opts.Dir and waits until NDB tables can be created through every
// SQL node. It takes 10 to 30 seconds. On an error nothing is left running.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	bin, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	if opts.Dir, err = filepath.Abs(opts.Dir); err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(opts.Dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty: it may hold an older cluster (stop it with 'down', then remove the directory)", opts.Dir)
	}
	ports, err := freeport.Several(1 + opts.DataNodes + opts.MySQLServers)
	if err != nil {
		return nil, err
	}
	l := layout{ManagementPort: ports[0], DataPorts: ports[1 : 1+opts.DataNodes], SQLPorts: ports[1+opts.DataNodes:]}
	c := newCluster(opts, l, bin)
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(err, c.KillAll())
	}
	if err := c.startAll(ctx, true); err != nil {
		return nil, errors.Join(err, c.KillAll())
	}
	return c, nil
}

// Open finds the cluster that Start made in dir, running or not.
func Open(dir string) (*Cluster, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("no cluster in %s: %w", dir, err)
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, stateFile), err)
	}
	c := newCluster(s.Options, s.Layout, s.Binaries)
	for _, p := range c.processes() {
		p.Pid = s.Pids[p.Name]
	}
	return c, nil
}

func newCluster(opts Options, l layout, bin Binaries) *Cluster {
	c := &Cluster{opts: opts, layout: l, bin: bin}
	dir := opts.Dir
	c.mgmd = &process{Name: "mgmd", Path: bin.Management, Args: []string{
		"--nodaemon", "-f", filepath.Join(dir, "config.ini"), "--configdir=" + filepath.Join(dir, "mgmd"),
	}}
	for i := range l.DataPorts {
		id := firstDataNode + i
		c.data = append(c.data, &process{Name: dataNodeName(id), Path: bin.DataNode, Args: []string{
			"--nodaemon", "-c", l.connectString(), fmt.Sprintf("--ndb-nodeid=%d", id),
		}})
	}
	for i, port := range l.SQLPorts {
		name := sqlNodeName(i + 1)
		args := append(bin.mysqldArgs(filepath.Join(dir, name), port),
			"--ndbcluster", "--ndb-connectstring="+l.connectString(), "--ndb-batch-size=1048576",
			"--skip-log-bin", "--max-allowed-packet=256M")
		c.sql = append(c.sql, &process{Name: name, Path: bin.MySQL, Args: append(args, opts.ServerArgs...)})
	}
	return c
}

func dataNodeName(id int) string { return fmt.Sprintf("ndbd%d", id) }
func sqlNodeName(n int) string   { return fmt.Sprintf("mysqld%d", n) }

func (b Binaries) mysqldArgs(dir string, port int) []string {
	args := []string{
		"--no-defaults", "--user=" + userName(), "--datadir=" + dir, "--socket=" + filepath.Join(dir, "mysql.sock"),
		fmt.Sprintf("--port=%d", port), "--bind-address=127.0.0.1", "--loose-mysqlx=OFF", "--pid-file=" + filepath.Join(dir, "mysqld.pid"),
	}
	return append(args, b.shareArgs()...)
}

func (b Binaries) shareArgs() []string {
	args := []string{"--basedir=" + filepath.Dir(filepath.Dir(b.MySQL))}
	if b.Share != "" {
		args = append(args, "--lc-messages-dir="+b.Share, "--character-sets-dir="+filepath.Join(b.Share, "charsets"))
	}
	return args
}

// userName is the account that mysqld runs under: it refuses to run as root unless told so.
func userName() string {
	if os.Getuid() == 0 {
		return "root"
	}
	return os.Getenv("USER")
}

// prepare makes directories, the configuration and the SQL nodes' system tables.
func (c *Cluster) prepare(ctx context.Context) error {
	for _, p := range append([]*process{c.mgmd}, c.data...) {
		if err := os.MkdirAll(filepath.Join(c.opts.Dir, p.Name), 0o755); err != nil {
			return err
		}
	}
	ini := filepath.Join(c.opts.Dir, "config.ini")
	if err := os.WriteFile(ini, []byte(c.opts.configINI(c.layout, c.opts.Dir)), 0o644); err != nil {
		return err
	}
	for _, p := range c.sql {
		if err := c.bin.initialize(ctx, filepath.Join(c.opts.Dir, p.Name)); err != nil {
			return err
		}
	}
	return nil
}

// initialize creates the data directory of a MySQL server with a root account without password.
func (b Binaries) initialize(ctx context.Context, dir string) error {
	args := append([]string{"--no-defaults", "--initialize-insecure", "--user=" + userName(), "--datadir=" + dir}, b.shareArgs()...)
	out, err := exec.CommandContext(ctx, b.MySQL, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initializing %s: %w: %s", dir, err, out)
	}
	return nil
}

func (c *Cluster) startAll(ctx context.Context, initial bool) error {
	if err := c.startManagement(ctx, initial); err != nil {
		return err
	}
	for _, p := range c.data {
		if err := c.launch(p, initialArg(initial)...); err != nil {
			return err
		}
	}
	for i := range c.sql {
		if err := c.launch(c.sql[i]); err != nil {
			return err
		}
	}
	for i := range c.sql {
		if err := c.awaitMySQL(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

func initialArg(initial bool) []string {
	if initial {
		return []string{"--initial"}
	}
	return nil
}

// launch starts a process, with arguments for this start only, and records its id.
func (c *Cluster) launch(p *process, extra ...string) error {
	run := *p
	run.Args = append(append([]string{}, p.Args...), extra...)
	if err := run.start(c.opts.Dir); err != nil {
		return err
	}
	p.Pid = run.Pid
	return c.save()
}

func (c *Cluster) startManagement(ctx context.Context, initial bool) error {
	if err := c.launch(c.mgmd, initialArg(initial)...); err != nil {
		return err
	}
	return c.mgmd.await(ctx, c.opts.Dir, func(ctx context.Context) error { return dial(ctx, c.layout.connectString()) })
}

func (c *Cluster) awaitMySQL(ctx context.Context, n int) error {
	port := c.layout.SQLPorts[n-1]
	p := c.sql[n-1]
	return p.await(ctx, c.opts.Dir, func(ctx context.Context) error { return tryNDBTable(ctx, port, p.Name) })
}

func (c *Cluster) processes() []*process {
	return append(append([]*process{c.mgmd}, c.data...), c.sql...)
}

func (c *Cluster) save() error {
	s := saved{Options: c.opts, Layout: c.layout, Binaries: c.bin, Pids: map[string]int{}}
	for _, p := range c.processes() {
		s.Pids[p.Name] = p.Pid
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(c.opts.Dir, stateFile+".new")
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(c.opts.Dir, stateFile))
}

// URL is the store URL of the cluster, with all SQL nodes and the given options
// ("durability=disk"). The database is flinkndb.
func (c *Cluster) URL(options ...string) string {
	return c.URLOf("flinkndb", options...)
}

// URLOf is URL for a database of another name.
func (c *Cluster) URLOf(database string, options ...string) string {
	hosts := make([]string, len(c.layout.SQLPorts))
	for i, port := range c.layout.SQLPorts {
		hosts[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return fmt.Sprintf("mysql://root@%s/%s?%s", strings.Join(hosts, ","), database,
		strings.Join(append([]string{"engine=ndb"}, options...), "&"))
}

// DSN is the address of SQL node n (from 1) in the form of go-sql-driver/mysql, without a database.
func (c *Cluster) DSN(n int) string {
	return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", c.layout.SQLPorts[n-1])
}

// Dir is the directory that holds the cluster's files.
func (c *Cluster) Dir() string { return c.opts.Dir }

// DataNodeIDs are the node ids that KillDataNode and StartDataNode take.
func (c *Cluster) DataNodeIDs() []int {
	ids := make([]int, len(c.data))
	for i := range ids {
		ids[i] = firstDataNode + i
	}
	return ids
}

func (c *Cluster) dataNode(id int) (*process, error) {
	i := id - firstDataNode
	if i < 0 || i >= len(c.data) {
		return nil, fmt.Errorf("data node %d: there are %v", id, c.DataNodeIDs())
	}
	return c.data[i], nil
}

func (c *Cluster) sqlNode(n int) (*process, error) {
	if n < 1 || n > len(c.sql) {
		return nil, fmt.Errorf("SQL node %d: allowed are 1 to %d", n, len(c.sql))
	}
	return c.sql[n-1], nil
}

// KillDataNode kills both processes of a data node at once, as a crash of its machine would.
func (c *Cluster) KillDataNode(id int) error {
	p, err := c.dataNode(id)
	if err != nil {
		return err
	}
	return p.kill()
}

// StartDataNode brings a killed data node back and waits until it serves.
func (c *Cluster) StartDataNode(ctx context.Context, id int) error {
	p, err := c.dataNode(id)
	if err != nil {
		return err
	}
	if err := c.launch(p); err != nil {
		return err
	}
	return p.await(ctx, c.opts.Dir, func(ctx context.Context) error { return c.dataNodesReady(ctx, len(c.data)) })
}

// KillMySQL kills SQL node n (from 1).
func (c *Cluster) KillMySQL(n int) error {
	p, err := c.sqlNode(n)
	if err != nil {
		return err
	}
	return p.kill()
}

// PauseMySQL stops SQL node n without ending it: it neither answers nor closes connections.
func (c *Cluster) PauseMySQL(n int) error {
	p, err := c.sqlNode(n)
	if err != nil {
		return err
	}
	return p.signal(syscall.SIGSTOP)
}

// ResumeMySQL lets a paused SQL node go on.
func (c *Cluster) ResumeMySQL(n int) error {
	p, err := c.sqlNode(n)
	if err != nil {
		return err
	}
	return p.signal(syscall.SIGCONT)
}

// StartMySQL starts a killed SQL node and waits until it serves NDB tables.
func (c *Cluster) StartMySQL(ctx context.Context, n int) error {
	p, err := c.sqlNode(n)
	if err != nil {
		return err
	}
	if err := c.launch(p); err != nil {
		return err
	}
	return c.awaitMySQL(ctx, n)
}

// KillAll kills every process of the cluster, data nodes first, as a power failure would.
func (c *Cluster) KillAll() error {
	var errs []error
	for _, p := range append(append(append([]*process{}, c.data...), c.sql...), c.mgmd) {
		errs = append(errs, p.kill())
	}
	return errors.Join(errs...)
}

// Restart starts a cluster whose processes have all been killed or stopped, from its files.
func (c *Cluster) Restart(ctx context.Context) error {
	for _, p := range c.processes() {
		if p.running() {
			return fmt.Errorf("%s still runs: Restart is for a cluster that is down", p.Name)
		}
	}
	return c.startAll(ctx, false)
}

// Stop ends everything in order: SQL nodes, then the cluster, which first writes what it has to
// disk. What has not ended in time is killed.
func (c *Cluster) Stop(ctx context.Context) error {
	var errs []error
	for _, p := range c.sql {
		errs = append(errs, p.terminate(20*time.Second))
	}
	if c.bin.Client != "" && c.mgmd.running() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, c.bin.Client, "-c", c.layout.connectString(), "-e", "shutdown").CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("shutting the cluster down: %w: %s", err, out))
		}
	}
	for _, p := range append(append([]*process{}, c.data...), c.mgmd) {
		errs = append(errs, p.terminate(15*time.Second))
	}
	return errors.Join(errs...)
}

// Pids are the ids of all running processes of the cluster.
func (c *Cluster) Pids() []int {
	var pids []int
	for _, p := range c.processes() {
		pids = append(pids, p.members()...)
	}
	return pids
}

// Status says in one line for each process whether it runs.
func (c *Cluster) Status() []string {
	var lines []string
	for _, p := range c.processes() {
		state := "not running"
		if p.running() {
			state = fmt.Sprintf("running, pid %d", p.Pid)
		}
		lines = append(lines, fmt.Sprintf("%-9s %s", p.Name, state))
	}
	return lines
}

// Running says whether every process runs.
func (c *Cluster) Running() bool {
	for _, p := range c.processes() {
		if !p.running() {
			return false
		}
	}
	return true
}
