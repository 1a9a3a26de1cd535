// Package cmd holds the commands of the flinkndb binary: serve, and those that an administrator
// runs against a server.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/flinkndb/flinkndb/server/bench"
)

// Exit codes of the binary.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// usageError is an error of the caller: a flag or argument that is not allowed.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usageErrorf(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// Execute runs the command line and returns the exit code.
func Execute(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintln(stderr, "flinkndb:", err)
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "flinkndb",
		Short:         "Keyed state of Apache Flink, outside of Flink",
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			return flagsFromEnvironment(c.Flags(), os.LookupEnv)
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err.Error()} })
	root.AddCommand(newServeCommand(), newStatusCommand(), newSpacesCommand(), newSessionsCommand(),
		newSnapshotsCommand(), newGCCommand(), newSchemaCommand(), bench.NewCommand(), newVersionCommand())
	return root
}

// flagsFromEnvironment sets each flag that was not given from FLINKNDB_<NAME>, where that is set.
func flagsFromEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil {
			return
		}
		name := "FLINKNDB_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value, ok := lookup(name); ok {
			if err := flags.Set(f.Name, value); err != nil {
				failed = usageErrorf("%s: %v", name, err)
			}
		}
	})
	return failed
}
