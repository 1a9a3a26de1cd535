// Package ndb runs a real MySQL NDB Cluster on the loopback interface, for tests and for people
// who try FlinkNDB on one machine. It starts management node, data nodes and SQL nodes, kills and
// restarts single nodes or everything, and leaves nothing running after Stop.
//
// StartInnoDB does the same for one plain MySQL or MariaDB server.
//
// None of this is for production: everything runs on one machine, as one user, without passwords.
package ndb
