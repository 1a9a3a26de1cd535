package ndb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/flinkndb/flinkndb/server/store"
)

// class says what to do about an error.
type class int

const (
	// permanent: repeating does not help.
	permanent class = iota
	// conflict: the transaction lost against another one; repeat at once.
	conflict
	// overload: the cluster is short of something for a moment; repeat later.
	overload
	// hostDown: this MySQL server does not work; repeat, on another one if there is one.
	hostDown
)

func (c class) String() string {
	return [...]string{"permanent", "conflict", "overload", "host_down"}[c]
}

// Error numbers of the MySQL server (see its reference, "Server Error Message Reference").
const (
	erCantLock            = 1015
	erDiskFull            = 1021
	erOpenAsReadonly      = 1036
	erConCount            = 1040
	erOutOfResources      = 1041
	erDBAccessDenied      = 1044
	erAccessDenied        = 1045
	erBadDB               = 1049
	erServerShutdown      = 1053
	erDupEntry            = 1062
	erRecordFileFull      = 1114
	erTableAccessDenied   = 1142
	erColumnAccessDenied  = 1143
	erNoSuchTable         = 1146
	erPacketTooLarge      = 1153
	erNetReadError        = 1158
	erNetReadInterrupted  = 1159
	erNetErrorOnWrite     = 1160
	erNetWriteInterrupted = 1161
	erErrorDuringCommit   = 1180
	erLockWaitTimeout     = 1205
	erLockTableFull       = 1206
	erDeadlock            = 1213
	erSpecificAccess      = 1227
	erUnknownVariable     = 1193
	erTooManyUserConns    = 1226
	erUnknownEngine       = 1286
	erOptionPrevents      = 1290
	erGetErrmsg           = 1296
	erGetTemporaryErrmsg  = 1297
	erQueryInterrupted    = 1317
	erTableDefChanged     = 1412
	erXARBDeadlock        = 1614
	erReadOnlyMode        = 1836
	erConnectionKilled    = 1927 // MariaDB
	erEngineOutOfMemory   = 3019
	erClientInteraction   = 4031 // the server closed an idle session
)

// Error codes of NDB, as `ndb_perror` knows them.
const (
	ndbNoConnection       = 157
	ndbOutOfOperations    = 233
	ndbLockTimeout        = 266
	ndbTimeout            = 274
	ndbNodeFailure        = 286
	ndbRedoOverload       = 410
	ndbOutOfDataMemory    = 826
	ndbOutOfDataMemory2   = 827
	ndbOutOfDataMemory3   = 921
	ndbOutOfTransMemory   = 1217
	ndbOutOfRedoBuffer    = 1221
	ndbOutOfRedoSpace     = 1234
	ndbClusterFailure     = 4009
	ndbNodeFailureAborted = 4010
	ndbUnknownOutcome     = 4012
	ndbAborted            = 4350
	ndbReceiveFailed      = 4008
	ndbUnavailable        = 4035
	ndbOutOfDisk          = 1601
)

// hints say what an administrator can do; key: MySQL's error number, or minus NDB's code.
var hints = map[int]string{
	-ndbOutOfOperations:  "raise MaxNoOfConcurrentOperations of the data nodes",
	-ndbRedoOverload:     "the redo log is full: raise NoOfFragmentLogFiles, or use faster disks",
	-ndbOutOfRedoSpace:   "the redo log is full: raise NoOfFragmentLogFiles, or use faster disks",
	-ndbOutOfRedoBuffer:  "raise RedoBuffer of the data nodes",
	-ndbOutOfTransMemory: "raise TransactionMemory of the data nodes",
	-ndbOutOfDataMemory:  "the data nodes' DataMemory is full: raise it and restart the data nodes one after the other, or release snapshots",
	-ndbOutOfDataMemory2: "the data nodes' DataMemory is full: raise it and restart the data nodes one after the other, or release snapshots",
	-ndbOutOfDataMemory3: "the data nodes' DataMemory is full: raise it and restart the data nodes one after the other, or release snapshots",
	-ndbNoConnection:     "the MySQL server has no connection to the cluster: look at the data nodes",
	-ndbClusterFailure:   "the MySQL server has lost the cluster: look at the data nodes",
	erRecordFileFull:     "the store has no room: with NDB raise DataMemory and restart the data nodes one after the other, with InnoDB look at the disk; or release snapshots",
	erDiskFull:           "the MySQL server's disk is full",
	erConCount:           "the MySQL server has no free connection: raise max_connections, or lower the option pool of the store URL",
	erTooManyUserConns:   "the account has no free connection: raise its limit, or lower the option pool of the store URL",
	erAccessDenied:       "check user and password (" + passwordVariable + " or the option password-file)",
	erDBAccessDenied:     "the account needs SELECT, INSERT, UPDATE, DELETE on the database, and CREATE unless the tables exist ('flinkndb schema' prints them)",
	erTableAccessDenied:  "the account needs SELECT, INSERT, UPDATE, DELETE on the database, and CREATE unless the tables exist ('flinkndb schema' prints them)",
	erUnknownVariable:    "the MySQL server was built or started without NDB: start it with --ndbcluster, or use engine=innodb",
	erUnknownEngine:      "the MySQL server was built or started without NDB: start it with --ndbcluster, or use engine=innodb",
	erNoSuchTable:        "the MySQL server does not see FlinkNDB's tables: look at its connection to the cluster; if somebody removed them, restart the FlinkNDB server",
	erPacketTooLarge:     "somebody lowered max_allowed_packet while the server ran: restart the server",
}

// ndbCode finds NDB's own code in the text of a MySQL error.
var ndbCodePattern = regexp.MustCompile(`(?:[Gg]ot (?:temporary )?error|NDB error code:?|error code) (\d+)`)

func ndbCode(err *mysql.MySQLError) int {
	if m := ndbCodePattern.FindStringSubmatch(err.Message); m != nil {
		n, convErr := strconv.Atoi(m[1])
		if convErr == nil {
			return n
		}
	}
	return 0
}

// classify sorts an error of the driver or the server. It must not see errors of a caller's context.
func classify(err error) class {
	var my *mysql.MySQLError
	switch {
	case errors.Is(err, errUnknownOutcome):
		return permanent
	case errors.As(err, &my):
		return classifyServer(my)
	case errors.Is(err, errTorn):
		return conflict
	}
	if brokenConnection(err) {
		return hostDown
	}
	return permanent
}

// brokenConnection says whether an error of the driver means that the connection is of no more use.
func brokenConnection(err error) bool {
	var network net.Error
	if errors.As(err, &network) {
		return true
	}
	for _, broken := range []error{driver.ErrBadConn, mysql.ErrInvalidConn, mysql.ErrPktSync, mysql.ErrPktSyncMul,
		mysql.ErrMalformPkt, mysql.ErrBusyBuffer, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return false
}

func classifyServer(my *mysql.MySQLError) class {
	switch my.Number {
	case erLockWaitTimeout, erDeadlock, erTableDefChanged, erXARBDeadlock, erDupEntry:
		return conflict // of these erDupEntry: another transaction inserted the name to lock first
	case erLockTableFull, erConCount, erTooManyUserConns, erOutOfResources, erEngineOutOfMemory:
		return overload
	case erServerShutdown, erNetReadError, erNetReadInterrupted, erNetErrorOnWrite, erNetWriteInterrupted,
		erOpenAsReadonly, erOptionPrevents, erReadOnlyMode, erQueryInterrupted, erConnectionKilled, erClientInteraction,
		erNoSuchTable: // the last one: a MySQL server that has just joined the cluster does not know its tables yet
		return hostDown
	case erGetErrmsg, erGetTemporaryErrmsg, erErrorDuringCommit, erCantLock:
		return classifyNDB(my)
	}
	return permanent
}

func classifyNDB(my *mysql.MySQLError) class {
	switch ndbCode(my) {
	case ndbNoConnection, ndbClusterFailure, ndbUnavailable:
		return hostDown
	case ndbLockTimeout, ndbTimeout, ndbNodeFailure, ndbNodeFailureAborted, ndbUnknownOutcome, ndbReceiveFailed, ndbAborted:
		return conflict
	case ndbOutOfDataMemory, ndbOutOfDataMemory2, ndbOutOfDataMemory3, ndbOutOfDisk:
		return permanent
	}
	if my.Number == erGetTemporaryErrmsg {
		return overload
	}
	return permanent
}

// isFull says whether the store has no room.
func isFull(err error) bool {
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		return false
	}
	switch my.Number {
	case erRecordFileFull, erDiskFull:
		return true
	}
	switch ndbCode(my) {
	case ndbOutOfDataMemory, ndbOutOfDataMemory2, ndbOutOfDataMemory3, ndbOutOfDisk:
		return true
	}
	return false
}

// explain wraps a final error for the caller: with the sentinel that it stands for, and with what
// an administrator can do about it.
func explain(op string, err error) error {
	if errors.Is(err, store.ErrClosed) || errors.Is(err, store.ErrTooLarge) {
		return err
	}
	if hint := hintFor(err); hint != "" {
		err = fmt.Errorf("%w (%s)", err, hint)
	}
	switch {
	case errors.Is(err, errUnknownOutcome): // whatever the reason: that it did not happen must not be said
		return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, err)
	case isFull(err):
		return fmt.Errorf("%s: %w: %w", op, store.ErrFull, err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", op, err)
	case classify(err) != permanent:
		return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}

func hintFor(err error) string {
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		return ""
	}
	if code := ndbCode(my); code != 0 {
		if hint, ok := hints[-code]; ok {
			return hint
		}
	}
	return hints[int(my.Number)]
}
