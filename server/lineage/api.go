// Package lineage gives rows their versions: it knows sessions, epochs, snapshots, fencing and
// garbage, and keeps all of it in a store.Store. See docs/design.md for the model.
//
// Truth is in the store's meta records; what this package holds in memory can be made again from
// them, so that several servers may work on one store and each may die at any time.
package lineage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"
)

// Errors that callers tell apart with errors.Is, besides those of package store.
var (
	// ErrInvalid says that a request makes no sense; the text names the field.
	ErrInvalid = errors.New("invalid request")
	// ErrFenced says that a newer session of the same job has taken over key groups of this one.
	ErrFenced = errors.New("session is fenced: a newer attempt of the same task has taken over")
	// ErrSessionNotFound says that a session is unknown, closed, expired or attached elsewhere.
	ErrSessionNotFound = errors.New("session not found")
	// ErrSnapshotNotFound says that a snapshot is unknown or was released.
	ErrSnapshotNotFound = errors.New("snapshot not found")
	// ErrTooLarge says that a key or value is above the limits.
	ErrTooLarge = errors.New("too large")
)

// What names may have in bytes: those of states, which a job chooses and records hold, and ids of sessions and
// snapshots, which the shim makes and records are named by.
const (
	maxStateName = 8 << 10
	maxID        = 256
)

// checkName refuses names that no client of ours makes.
func checkName(field, name string, most int) error {
	if name == "" || len(name) > most {
		return fmt.Errorf("%w: %s has %d bytes, allowed are 1 to %d", ErrInvalid, field, len(name), most)
	}
	return nil
}

// StateKind is what the rows of a state are. Numbers are those of the wire.
type StateKind uint8

// The kinds of state.
const (
	KindValue StateKind = 1
	KindList  StateKind = 2
	KindMap   StateKind = 3
	KindTimer StateKind = 4
)

// Op is what an entry does. Numbers are those of the wire.
type Op uint8

// The operations.
const (
	OpNone         Op = 0
	OpPut          Op = 1
	OpDelete       Op = 2
	OpAppend       Op = 3
	OpDeletePrefix Op = 4
)

// Entry is a row, a key, or a change of a row. State is the session's number of a state.
type Entry struct {
	State uint16
	Group uint16
	Op    Op
	Key   []byte
	Value []byte
}

// Range is a range of key groups, both ends included.
type Range struct {
	First uint16 `json:"first"`
	Last  uint16 `json:"last"`
}

func (r Range) contains(group uint16) bool { return r.First <= group && group <= r.Last }

func (r Range) overlaps(other Range) bool { return r.First <= other.Last && other.First <= r.Last }

func (r Range) within(other Range) bool { return other.First <= r.First && r.Last <= other.Last }

// Options are the settings of a Lineage.
type Options struct {
	Log zerolog.Logger
	// ServerID names this server among those of the store; no other one ever had the name. The default value is random.
	ServerID string
	// Exclusive says that no other server can have the store open: none need be followed, to take over what it
	// remembered. The default value is for stores that servers share.
	Exclusive bool
	// Now is the time of day, for people to read; it may jump. nil stands for time.Now.
	Now func() time.Time
	// Elapsed is the time since the server started, by a clock that does not jump: what is due when is decided
	// by it. nil stands for the system's monotonic clock.
	Elapsed func() time.Duration
	// Lease is how long a session lives without a stream. The default value is one minute.
	Lease time.Duration
	// AbandonedRetention is how long abandoned snapshots are kept. The default value is one day.
	AbandonedRetention time.Duration
	// SweepInterval is the time between two passes of the garbage collector. The default value is
	// ten seconds.
	SweepInterval time.Duration
	// MaxGarbageKeys bounds the rows remembered for the sweeper, of all row spaces together; a row with a long key
	// counts for one more every 128 bytes. The default value is 500,000; above it the row space with the most is swept
	// as a whole. As many rows are remembered that sessions have made since their newest confirmed snapshots.
	MaxGarbageKeys int
	// MaxFilterBytes bounds the filters that spare writes of new rows a look at the store, of all
	// sessions together. The default value is 128 MiB, enough for 100 million rows.
	MaxFilterBytes int64
	// RowCacheBytes bounds the cache of what sessions see of rows, of all sessions together. The default value is 0:
	// none, for stores that have a cache of their own.
	RowCacheBytes int64
	// FlattenRate is how many bytes a second (keys and values) the flattener goes through, of all forks together. The
	// default value is 0: forks stay on top of the row spaces that they came from.
	FlattenRate int64
	// FlattenDelay is how old a fork must be before it is flattened: those that live shorter never copy anything.
	FlattenDelay time.Duration
	// MaxValueBytes is the largest value of a row, as its reader gets it. The default value is 64 MiB.
	MaxValueBytes int
}

func (o Options) withDefaults() Options {
	if o.ServerID == "" {
		o.ServerID = rand.Text()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Elapsed == nil {
		start := time.Now()
		o.Elapsed = func() time.Duration { return time.Since(start) }
	}
	if o.Lease == 0 {
		o.Lease = time.Minute
	}
	if o.AbandonedRetention == 0 {
		o.AbandonedRetention = 24 * time.Hour
	}
	if o.SweepInterval == 0 {
		o.SweepInterval = 10 * time.Second
	}
	if o.MaxGarbageKeys == 0 {
		o.MaxGarbageKeys = 500_000
	}
	if o.MaxFilterBytes == 0 {
		o.MaxFilterBytes = 128 << 20
	}
	if o.MaxValueBytes == 0 {
		o.MaxValueBytes = 64 << 20
	}
	return o
}

// OpenRequest asks for a session.
type OpenRequest struct {
	Token      string // secret of the client, unique: repeats of an open have the same
	JobID      string
	JobName    string
	Operator   string
	Attempt    string
	GroupCount uint32
	Range      Range
	Bases      []Base
	Lease      time.Duration // 0 = default
}

// Base names the snapshot that some key groups start from.
type Base struct {
	SnapshotID string
	Range      Range
}

// OpenResult is what a client learns when it opens a session.
type OpenResult struct {
	SessionID   uint64
	Generation  uint64
	Empty       bool
	BaseSchemas [][]byte
	Lease       time.Duration
}

// Order is the order of a scan.
type Order uint8

// The orders of a scan.
const (
	OrderGroupKey Order = 0 // by key group, then key
	OrderKeyGroup Order = 1 // by key over all groups, then group
)

// ScanRequest asks for one page of a state's rows.
type ScanRequest struct {
	State      uint16
	Range      Range
	Prefix     []byte
	Order      Order
	Resume     bool // go on strictly after (AfterGroup, AfterKey)
	AfterGroup uint16
	AfterKey   []byte
	LimitRows  int // 0 = 1024
	LimitBytes int // 0 = 4 MiB
	KeysOnly   bool
}

// SnapshotKind is why a snapshot is taken. Numbers are those of the wire.
type SnapshotKind uint8

// The kinds of snapshot.
const (
	SnapshotCheckpoint SnapshotKind = 1
	SnapshotSavepoint  SnapshotKind = 2
	SnapshotExport     SnapshotKind = 3
)

// SnapshotRequest asks for a snapshot as of the end of an epoch.
type SnapshotRequest struct {
	ID           string
	Epoch        uint64
	CheckpointID int64
	Kind         SnapshotKind
	// LastSeq is the highest seq of a Write before it, which must have been applied; 0 = not known.
	LastSeq uint64
	Schema  []byte
	States  []StateInfo // those that the schema describes, in its order
}

// SnapshotResult says what was written since the session's snapshot before.
type SnapshotResult struct {
	DeltaRows  uint64
	DeltaBytes uint64
}

// SnapshotInfo describes a snapshot.
type SnapshotInfo struct {
	ID           string
	JobID        string
	JobName      string
	Operator     string
	CheckpointID int64
	Kind         SnapshotKind
	Created      time.Time
	GroupCount   uint32
	Range        Range
	SessionID    uint64
	Generation   uint64
	Epoch        uint64
	Confirmed    bool
	Abandoned    time.Time // zero = not
	Spaces       []uint64
	Schema       []byte
	States       []StateInfo // those that the schema describes, in its order
}

// SessionInfo describes a live session.
type SessionInfo struct {
	ID           uint64
	JobID        string
	JobName      string
	Operator     string
	Attempt      string
	Range        Range
	Generation   uint64
	Epoch        uint64
	Attached     bool
	LeaseExpires time.Time
	Spaces       []uint64
}

// StateInfo names a state of a row space or snapshot.
type StateInfo struct {
	Number uint16
	Name   string
	Kind   StateKind
}

// SpaceInfo describes a row space.
type SpaceInfo struct {
	ID         uint64
	Created    time.Time
	JobID      string
	Operator   string
	GroupCount uint32
	Sessions   uint64
	Snapshots  uint64
	States     []StateInfo
	Bytes      uint64
	Rows       uint64 // only when counted
	Versions   uint64 // only when counted
}

// Totals are the numbers of `flinkndb status`.
type Totals struct {
	Spaces    uint64
	Sessions  uint64
	Snapshots uint64
	// LayeredGroups are the key groups of live sessions that read through to other row spaces.
	LayeredGroups uint64
	// FlattenedRows and FlattenedBytes were copied by this server since it was started.
	FlattenedRows  uint64
	FlattenedBytes uint64
	// What the row cache holds, and how often a row was found there, known to be absent included, or was not.
	CachedRows, CachedBytes uint64
	CacheHits, CacheMisses  uint64
}

// GarbageReport says what a collection did, or with checkOnly would have to do.
type GarbageReport struct {
	ExpiredSessions   uint64
	ReleasedSnapshots uint64
	DroppedSpaces     uint64
	ScannedRows       uint64
	RemovedRows       uint64
	RemovedVersions   uint64
}
