package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
	"github.com/flinkndb/flinkndb/server/store/ndb"
	"github.com/flinkndb/flinkndb/server/store/pebble"
)

// NewCommand returns the command "bench".
func NewCommand() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "Measure performance"}
	c.AddCommand(newStoreCommand())
	return c
}

func newStoreCommand() *cobra.Command {
	var o Options
	var url string
	c := &cobra.Command{
		Use:   "store --store URL",
		Short: "Measure a store by batch size and concurrency, beside raw SQL for MySQL stores",
		Long: `Measure a store by batch size and concurrency.

For a MySQL store each figure stands beside that of raw SQL of the same shape on a table of its own, measured
in turn with it: START TRANSACTION, the bulk statements, COMMIT, with nothing around them.
The store must not be in use: the row spaces of the benchmark are dropped at its end.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			s, err := openStore(c.Context(), url)
			if err != nil {
				return err
			}
			err = Run(c.Context(), s, url, o, c.OutOrStdout())
			if closeErr := s.Close(); err == nil {
				err = closeErr
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&url, "store", "", "store: pebble:DIR, memory: or mysql://...")
	f.IntVar(&o.Rows, "rows", 50000, "rows that exist, and that each measurement moves")
	f.IntSliceVar(&o.Batches, "batch", []int{1, 16, 128, 1000}, "rows in one call")
	f.IntSliceVar(&o.Concurrency, "concurrency", []int{1, 4}, "calls at the same time")
	f.StringSliceVar(&o.Operations, "operations", operationNames(), "what to measure")
	f.IntVar(&o.KeyBytes, "key-bytes", 20, "size of keys (at least 8)")
	f.IntVar(&o.ValueBytes, "value-bytes", 100, "size of values")
	f.IntVar(&o.KeyGroups, "key-groups", 16, "key groups that the rows are spread over")
	f.IntVar(&o.Rounds, "rounds", 3, "rounds of each measurement; the median counts")
	f.DurationVar(&o.MaxTime, "max-time", 5*time.Second, "a round ends after this time even if rows are left")
	_ = c.MarkFlagRequired("store")
	return c
}

func openStore(ctx context.Context, url string) (store.Store, error) {
	kind, rest, _ := strings.Cut(url, ":")
	switch {
	case kind == "memory" && rest == "":
		return memory.New(), nil
	case kind == "pebble" && rest != "":
		return pebble.Open(rest, pebble.Options{Log: zerolog.Nop()})
	case kind == "mysql":
		return ndb.Open(ctx, url, zerolog.Nop(), nil)
	}
	return nil, fmt.Errorf("--store: found %q, allowed are pebble:DIR, memory: and mysql://USER@HOST:PORT/DATABASE?engine=ndb", url)
}
