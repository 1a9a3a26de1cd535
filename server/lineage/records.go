package lineage

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/flinkndb/flinkndb/server/store"
)

// Names of meta records. Transactions lock names in ascending order: counter, gate, lane, space.
const (
	counterKey     = "counter" // last number given to a session (= generation) or row space
	gateKey        = "gate"    // held by whatever opens, ends or releases; has no value
	lanePrefix     = "lane/"
	serverPrefix   = "server/"
	sessionPrefix  = "session/"
	snapshotPrefix = "snapshot/"
	spacePrefix    = "space/"
	tokenPrefix    = "token/"

	pinPrefix = "reader-" // begins the id of a snapshot that pins what a reader reads
)

func laneKey(id uint64) string     { return fmt.Sprintf("%s%016x", lanePrefix, id) }
func sessionKey(id uint64) string  { return fmt.Sprintf("%s%016x", sessionPrefix, id) }
func spaceKey(id uint64) string    { return fmt.Sprintf("%s%016x", spacePrefix, id) }
func snapshotKey(id string) string { return snapshotPrefix + id }
func tokenKey(token string) string { return tokenPrefix + token }

// layer is one row space as seen through a history.
type layer struct {
	Space   uint64  `json:"space"`
	History History `json:"history"`
}

// part is what a session or snapshot sees of some key groups: its layers, top first.
type part struct {
	Range
	Layers []layer `json:"layers"`
}

func (p part) bottom() bool { return len(p.Layers) == 1 }

// firstStamp is older than all that the sessions write into the top row space (their epochs begin with 1), and
// visible to whoever sees anything there: every history of a row space begins with the session that made it.
func (p part) firstStamp() stamp { return stamp{p.Layers[0].History[0].Gen, 0} }

// sessionRecord is what the store knows of a live session.
type sessionRecord struct {
	ID         uint64        `json:"id"` // also its generation
	Token      string        `json:"token"`
	JobID      string        `json:"job"`
	JobName    string        `json:"job_name"`
	Operator   string        `json:"operator"`
	Attempt    string        `json:"attempt"`
	GroupCount uint32        `json:"group_count"`
	Range      Range         `json:"range"`
	Parts      []part        `json:"parts"`
	Lease      time.Duration `json:"lease"`
	Renewed    time.Time     `json:"renewed"`
	Empty      bool          `json:"empty"`
	Bases      []Base        `json:"bases"`
}

// startedEmpty says whether the session's open made the top row space of a part, with nothing below it: then nobody
// else has written its rows, and nobody copies rows into it.
func (r *sessionRecord) startedEmpty(p part) bool {
	history := p.Layers[0].History
	if len(history) != 1 || history[0].Gen != r.ID {
		return false
	}
	return !slices.ContainsFunc(r.Bases, func(b Base) bool { return b.Range.overlaps(p.Range) })
}

// snapshotRecord is a snapshot as stored.
type snapshotRecord struct {
	ID           string       `json:"id"`
	JobID        string       `json:"job"`
	JobName      string       `json:"job_name"`
	Operator     string       `json:"operator"`
	CheckpointID int64        `json:"checkpoint"`
	Kind         SnapshotKind `json:"kind"`
	Created      time.Time    `json:"created"`
	GroupCount   uint32       `json:"group_count"`
	Range        Range        `json:"range"`
	Parts        []part       `json:"parts"`
	Session      uint64       `json:"session"`
	Epoch        uint64       `json:"epoch"`
	Confirmed    bool         `json:"confirmed"`
	Abandoned    time.Time    `json:"abandoned"`
	Schema       []byte       `json:"schema"`
	States       []StateInfo  `json:"states,omitempty"`
}

// spaceRecord is a row space with its directory of states.
type spaceRecord struct {
	ID         uint64      `json:"id"`
	Created    time.Time   `json:"created"`
	JobID      string      `json:"job"`
	Operator   string      `json:"operator"`
	GroupCount uint32      `json:"group_count"`
	States     []StateInfo `json:"states"`
}

// state returns the number of a state in the space. Timers and key-value states have separate names.
func (s *spaceRecord) state(name string, kind StateKind) (uint16, bool) {
	for _, info := range s.States {
		if info.Name == name && (info.Kind == KindTimer) == (kind == KindTimer) {
			return info.Number, true
		}
	}
	return 0, false
}

// lane is the progress of a session, read and written by each of its writes. It is also what
// excludes a session's writer, its fencing and the sweeper from each other.
type lane struct {
	Attachment uint64 // number of the newest stream
	Applied    uint64 // highest seq applied
	Epoch      uint64 // epoch of the newest write or snapshot
	DeltaRows  uint64 // since the newest snapshot
	DeltaBytes uint64
	Fenced     bool
}

const laneBytes = 5*8 + 1

func (l lane) encode() []byte {
	raw := make([]byte, 0, laneBytes)
	for _, n := range []uint64{l.Attachment, l.Applied, l.Epoch, l.DeltaRows, l.DeltaBytes} {
		raw = binary.BigEndian.AppendUint64(raw, n)
	}
	if l.Fenced {
		return append(raw, 1)
	}
	return append(raw, 0)
}

func decodeLane(raw []byte) (lane, error) {
	if len(raw) != laneBytes {
		return lane{}, fmt.Errorf("lane record of %d bytes, expected %d", len(raw), laneBytes)
	}
	var numbers [5]uint64
	for i := range numbers {
		numbers[i] = binary.BigEndian.Uint64(raw[8*i:])
	}
	return lane{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], raw[laneBytes-1] == 1}, nil
}

// lockLane locks and reads the lane of a live session.
func lockLane(tx store.Tx, id uint64) (lane, error) {
	raw, err := tx.LockMeta(laneKey(id))
	if err != nil {
		return lane{}, fmt.Errorf("lock session %d: %w", id, err)
	}
	if raw == nil {
		return lane{}, fmt.Errorf("%w: session %d is unknown, was closed, or its lease expired", ErrSessionNotFound, id)
	}
	return decodeLane(raw)
}

// writeLane stores the progress of a session whose lane the transaction holds. Writing it as it is has a use, too: such a
// transaction is durable only when those before it are, which one without changes does not tell.
func writeLane(tx store.Tx, id uint64, progress lane) error {
	if err := tx.PutMeta(laneKey(id), progress.encode()); err != nil {
		return fmt.Errorf("write the lane of session %d: %w", id, err)
	}
	return nil
}

// metaReader is what Store and Tx have in common, as functions.
type metaReader func(key string) ([]byte, error)

func storeMeta(ctx context.Context, st store.Store) metaReader {
	return func(key string) ([]byte, error) { return st.Meta(ctx, key) }
}

// readRecord reads a JSON record; false where there is none.
func readRecord(read metaReader, key string, record any) (bool, error) {
	raw, err := read(key)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", key, err)
	}
	if raw == nil {
		return false, nil
	}
	return true, decodeRecord(key, raw, record)
}

// decodeRecord reads a record's bytes, and verifies what the code relies on.
func decodeRecord(key string, raw []byte, record any) error {
	if err := json.Unmarshal(raw, record); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	var err error
	switch r := record.(type) {
	case *sessionRecord:
		err = checkParts(r.Range, r.Parts)
	case *snapshotRecord:
		err = checkParts(r.Range, r.Parts)
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	return nil
}

// checkParts verifies that parts divide a range, in order, and that each has a layer.
func checkParts(groups Range, parts []part) error {
	next := uint32(groups.First)
	for i, p := range parts {
		if uint32(p.First) != next || p.Last < p.First || p.Last > groups.Last {
			return fmt.Errorf("part %d has key groups %d to %d, the record %d to %d", i, p.First, p.Last, groups.First, groups.Last)
		}
		if len(p.Layers) == 0 {
			return fmt.Errorf("part %d has no layers", i)
		}
		for _, l := range p.Layers {
			if l.Space == 0 {
				return fmt.Errorf("part %d has a layer without row space", i)
			}
		}
		next = uint32(p.Last) + 1
	}
	if next != uint32(groups.Last)+1 {
		return fmt.Errorf("parts end before key group %d of %d to %d", next, groups.First, groups.Last)
	}
	return nil
}

func writeRecord(tx store.Tx, key string, record any) error {
	raw, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	if err := tx.PutMeta(key, raw); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// scanRecords reads all records of a prefix.
func scanRecords[T any](ctx context.Context, st store.Store, prefix string) ([]*T, error) {
	metas, err := st.ScanMeta(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("read %s*: %w", prefix, err)
	}
	records := make([]*T, 0, len(metas))
	for _, m := range metas {
		record := new(T)
		if err := decodeRecord(m.Key, m.Value, record); err != nil {
			return nil, err
		}
		records = append(records, record)
	}
	return records, nil
}

// nextNumbers takes numbers from the counter that sessions, row spaces and readers share.
func nextNumbers(tx store.Tx, n uint64) (uint64, error) {
	last, err := readCounter(tx.LockMeta)
	if err != nil {
		return 0, err
	}
	if err := tx.PutMeta(counterKey, binary.BigEndian.AppendUint64(nil, last+n)); err != nil {
		return 0, fmt.Errorf("write %s: %w", counterKey, err)
	}
	return last + 1, nil
}

// readCounter returns the last number that was given.
func readCounter(read metaReader) (uint64, error) {
	raw, err := read(counterKey)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", counterKey, err)
	case raw == nil:
		return 0, nil
	case len(raw) != 8:
		return 0, fmt.Errorf("record %s has %d bytes, expected 8", counterKey, len(raw))
	}
	return binary.BigEndian.Uint64(raw), nil
}
