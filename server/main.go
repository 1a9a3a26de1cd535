// Command flinkndb is the state server of FlinkNDB and its administrator's tool.
package main

import (
	"os"

	"github.com/flinkndb/flinkndb/server/cmd"
)

func main() {
	os.Exit(cmd.Execute(os.Args[1:], os.Stdout, os.Stderr))
}
