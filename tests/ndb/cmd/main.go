// Command cmd starts and stops a MySQL NDB Cluster on this machine, to try FlinkNDB on it:
//
//	go run ./tests/ndb/cmd up [-data-nodes 2] [-replicas 2] [-mysql-servers 2] [-data-memory 1G] [-dir .cache/ndb-cluster]
//	go run ./tests/ndb/cmd status
//	go run ./tests/ndb/cmd find
//	go run ./tests/ndb/cmd down
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/flinkndb/flinkndb/tests/ndb"
)

const usage = `usage: cmd up|down|status|find [flags]
  up      create (or restart) a cluster and print its store URL
  status  say which processes run
  find    say where the programs of NDB are, or how to get them
  down    stop the cluster and remove its files (-keep leaves the files)
flags:`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ndb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ndb", flag.ExitOnError)
	var opts ndb.Options
	flags.StringVar(&opts.Dir, "dir", ".cache/ndb-cluster", "directory of the cluster's files")
	flags.IntVar(&opts.DataNodes, "data-nodes", 1, "number of data nodes (or DATA_NODES)")
	flags.IntVar(&opts.Replicas, "replicas", 1, "copies of each row; data nodes must be a multiple (or REPLICAS)")
	flags.IntVar(&opts.MySQLServers, "mysql-servers", 1, "number of MySQL servers (or MYSQL_SERVERS)")
	flags.StringVar(&opts.DataMemory, "data-memory", "1G", "memory for rows and indexes in each data node (or DATA_MEMORY)")
	keep := flags.Bool("keep", false, "down: leave the files, so that up restarts the same cluster")
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), usage)
		flags.PrintDefaults()
	}
	if len(args) == 0 {
		flags.Usage()
		os.Exit(2)
	}
	if err := fromEnvironment(flags); err != nil {
		return err
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, opts)
	case "down":
		return down(ctx, opts.Dir, *keep)
	case "status":
		return status(opts.Dir)
	case "find":
		return find(ctx)
	}
	return fmt.Errorf("command %q: allowed are up, down, status, find", args[0])
}

// fromEnvironment sets flags from variables, so that `make ndb-up DATA_NODES=2` works.
func fromEnvironment(flags *flag.FlagSet) error {
	for _, name := range []string{"data-nodes", "replicas", "mysql-servers", "data-memory"} {
		variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if value := os.Getenv(variable); value != "" {
			if err := flags.Set(name, value); err != nil {
				return fmt.Errorf("%s=%s: %w", variable, value, err)
			}
		}
	}
	return nil
}

func up(ctx context.Context, opts ndb.Options) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	began := time.Now()
	c, err := ndb.Open(opts.Dir)
	if err == nil {
		if c.Running() {
			fmt.Printf("The cluster in %s runs already.\nstore URL: %s\n", opts.Dir, c.URL())
			return nil
		}
		fmt.Printf("Restarting the cluster in %s ...\n", opts.Dir)
		err = c.Restart(ctx)
	} else {
		fmt.Printf("Starting a cluster: %d data node(s), %d replica(s), %d MySQL server(s), in %s ...\n",
			opts.DataNodes, opts.Replicas, opts.MySQLServers, opts.Dir)
		c, err = ndb.Start(ctx, opts)
	}
	if err != nil {
		return err
	}
	fmt.Printf("NDB Cluster is up after %.0f s.\nstore URL: %s\n", time.Since(began).Seconds(), c.URL())
	return nil
}

func find(ctx context.Context) error {
	b, err := ndb.FindBinaries(ctx)
	if err != nil {
		return err
	}
	fmt.Println("NDB Cluster found:", b.DataNode)
	return nil
}

func down(ctx context.Context, dir string, keep bool) error {
	c, err := ndb.Open(dir)
	if err != nil {
		return err
	}
	if err := c.Stop(ctx); err != nil {
		return err
	}
	if keep {
		fmt.Printf("NDB Cluster is down; its files stay in %s.\n", dir)
		return nil
	}
	fmt.Println("NDB Cluster is down and its files are removed.")
	return os.RemoveAll(dir)
}

func status(dir string) error {
	c, err := ndb.Open(dir)
	if err != nil {
		return err
	}
	for _, line := range c.Status() {
		fmt.Println(line)
	}
	fmt.Println("store URL:", c.URL())
	return nil
}
