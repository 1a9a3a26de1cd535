// Package ndb is the store on MySQL NDB Cluster, through mysqld and bulk SQL. The same SQL runs on
// InnoDB (MySQL, MariaDB) for those who have no NDB Cluster yet.
//
// # Tables
//
//	state_row      one row per store.Row, partitioned by (space, key_group)
//	meta           meta records
//	chunk          the rest of values (and keys) that do not fit into their row
//	long_state     (space, state) pairs that have, or once had, chunks: a hint that saves look-ups
//	server_commit  one row per open transaction slot of each server: tells after a lost connection
//	               whether a COMMIT happened, and carries the durability probe
//	schema_info    version and engine of the schema
//
// Rows are narrow on purpose: mysqld works with buffers of the longest possible row, so that a table
// of 30 kB rows is read at half the speed of one with 3 kB rows whatever the rows hold. No BLOB
// columns either: NDB keeps these in hidden tables, one round trip per row.
//
// # Consistency
//
// NDB has one isolation level, read committed: each row (with its chunks) is read as of one moment,
// but the rows of a Get or of a Scan's page may be from slightly different moments when a concurrent
// Update changes several of them. Callers who need more hold the lock that covers the rows, as
// lineage does. With InnoDB a page is one snapshot.
package ndb
