package ndb

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver for the readiness checks
)

// probeTimeout bounds one readiness check; they are repeated until they succeed.
const probeTimeout = 10 * time.Second

func dial(ctx context.Context, address string) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// withServer runs fn with a connection to the MySQL server on a loopback port.
func withServer(ctx context.Context, port int, fn func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := dial(ctx, fmt.Sprintf("127.0.0.1:%d", port)); err != nil {
		return err // spares the driver's log lines about refused connections
	}
	db, err := sql.Open("mysql", fmt.Sprintf("root@tcp(127.0.0.1:%d)/", port))
	if err != nil {
		return err
	}
	defer db.Close()
	return fn(ctx, db)
}

// tryNDBTable creates and drops an NDB table: only then is a SQL node connected to the cluster and
// through with its schema synchronization.
func tryNDBTable(ctx context.Context, port int, name string) error {
	return withServer(ctx, port, func(ctx context.Context, db *sql.DB) error {
		for _, statement := range []string{
			"CREATE DATABASE IF NOT EXISTS ndb_probe",
			"DROP TABLE IF EXISTS ndb_probe." + name,
			"CREATE TABLE ndb_probe." + name + " (a INT PRIMARY KEY) ENGINE=ndbcluster",
			"DROP TABLE ndb_probe." + name,
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// dataNodesReady succeeds when the SQL nodes see at least n data nodes that serve.
func (c *Cluster) dataNodesReady(ctx context.Context, n int) error {
	last := fmt.Errorf("no SQL node runs")
	for i, p := range c.sql {
		if !p.running() {
			continue
		}
		ready, err := c.readyDataNodes(ctx, i+1)
		if err == nil && ready >= n {
			return nil
		}
		last = fmt.Errorf("SQL node %d sees %d of %d data nodes ready (%v)", i+1, ready, n, err)
	}
	return last
}

func (c *Cluster) readyDataNodes(ctx context.Context, sqlNode int) (int, error) {
	var ready int
	err := withServer(ctx, c.layout.SQLPorts[sqlNode-1], func(ctx context.Context, db *sql.DB) error {
		var name, value string
		err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Ndb_number_of_ready_data_nodes'").Scan(&name, &value)
		if err != nil {
			return err
		}
		ready, err = strconv.Atoi(value)
		return err
	})
	return ready, err
}
