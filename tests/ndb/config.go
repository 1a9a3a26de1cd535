package ndb

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Options describe a cluster.
type Options struct {
	// Dir holds all files of the cluster. It must be empty or absent.
	Dir string
	// DataNodes is the number of data nodes, 1 to 8. The default is 1.
	DataNodes int
	// Replicas is how many data nodes keep each row, 1 to 4; DataNodes must be a multiple. The
	// default is 1.
	Replicas int
	// MySQLServers is the number of SQL nodes, 1 to 8. The default is 1.
	MySQLServers int
	// DataMemory is the memory for rows and indexes of each data node. The default is "512M".
	DataMemory string
	// Settings are lines for the section [ndbd default] that override this package's.
	Settings map[string]string
	// ServerArgs are added to the command line of every mysqld.
	ServerArgs []string
}

func (o Options) withDefaults() Options {
	if o.DataNodes == 0 {
		o.DataNodes = 1
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.MySQLServers == 0 {
		o.MySQLServers = 1
	}
	if o.DataMemory == "" {
		o.DataMemory = "512M"
	}
	return o
}

func (o Options) validate() error {
	switch {
	case o.Dir == "":
		return fmt.Errorf("directory of the cluster is not given")
	case o.DataNodes < 1 || o.DataNodes > 8:
		return fmt.Errorf("data nodes: %d; allowed are 1 to 8", o.DataNodes)
	case o.Replicas < 1 || o.Replicas > 4:
		return fmt.Errorf("replicas: %d; allowed are 1 to 4", o.Replicas)
	case o.DataNodes%o.Replicas != 0:
		return fmt.Errorf("data nodes: %d; must be a multiple of replicas, %d", o.DataNodes, o.Replicas)
	case o.MySQLServers < 1 || o.MySQLServers > 8:
		return fmt.Errorf("MySQL servers: %d; allowed are 1 to 8", o.MySQLServers)
	}
	return nil
}

// layout is what Start decides about a cluster and Restart needs to know again.
type layout struct {
	ManagementPort int
	DataPorts      []int // ServerPort of data node i+2
	SQLPorts       []int // TCP port of SQL node i+1
}

// mgmNode is the node id of the management node; data nodes follow from firstDataNode on.
const (
	mgmNode       = 1
	firstDataNode = 2
)

func (l layout) connectString() string { return fmt.Sprintf("127.0.0.1:%d", l.ManagementPort) }

// configINI is the cluster's configuration. Sizes suit a small machine; the operation limit is
// raised because bulk writes hold many rows in one transaction.
func (o Options) configINI(l layout, dir string) string {
	settings := map[string]string{
		"NoOfReplicas":                 fmt.Sprint(o.Replicas),
		"DataMemory":                   o.DataMemory,
		"FragmentLogFileSize":          "64M",
		"NoOfFragmentLogFiles":         "8",
		"RedoBuffer":                   "64M",
		"MaxNoOfConcurrentOperations":  "200000",
		"MaxNoOfExecutionThreads":      "2",
		"TimeBetweenLocalCheckpoints":  "20",
		"StartPartialTimeout":          "120000", // a node that a busy machine keeps from starting is waited for
		"HeartbeatIntervalDbDb":        "5000",   // four may be missed; that a process has died shows at once
		"TimeBetweenWatchDogCheck":     "30000",  // a thread that gets no processor is not one that hangs
		"TimeBetweenGlobalCheckpoints": "2000",
	}
	for k, v := range o.Settings {
		settings[k] = v
	}
	var b strings.Builder
	b.WriteString("[ndbd default]\n")
	for _, k := range sortedKeys(settings) {
		fmt.Fprintf(&b, "%s=%s\n", k, settings[k])
	}
	fmt.Fprintf(&b, "\n[ndb_mgmd]\nNodeId=%d\nHostName=127.0.0.1\nPortNumber=%d\nDataDir=%s\n",
		mgmNode, l.ManagementPort, filepath.Join(dir, "mgmd"))
	for i, port := range l.DataPorts {
		fmt.Fprintf(&b, "\n[ndbd]\nNodeId=%d\nHostName=127.0.0.1\nServerPort=%d\nDataDir=%s\n",
			firstDataNode+i, port, filepath.Join(dir, dataNodeName(firstDataNode+i)))
	}
	for range l.SQLPorts {
		b.WriteString("\n[mysqld]\nHostName=127.0.0.1\n")
	}
	b.WriteString("\n[api]\nHostName=127.0.0.1\n")
	return b.String()
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
