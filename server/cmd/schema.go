package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/flinkndb/flinkndb/server/store/ndb"
)

func newSchemaCommand() *cobra.Command {
	var engine string
	c := &cobra.Command{
		Use:   "schema",
		Short: "Print the SQL that creates the tables of a MySQL store",
		Long:  "Print the SQL that creates the tables of a MySQL store, for administrators who run it by hand. The server does it itself if its account has the right to create tables.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if e := ndb.Engine(engine); e == ndb.EngineNDB || e == ndb.EngineInnoDB {
				_, err := fmt.Fprint(c.OutOrStdout(), ndb.Schema(e))
				return err
			}
			return usageErrorf("--engine: found %q, allowed are ndb and innodb", engine)
		},
	}
	c.Flags().StringVar(&engine, "engine", string(ndb.EngineNDB), "storage engine: ndb or innodb")
	return c
}
