package lineage

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/memory"
)

func sampleRecord(t testing.TB) []byte {
	t.Helper()
	raw, err := json.Marshal(&sessionRecord{ID: 3, Range: Range{0, 3}, Parts: []part{
		{Range{0, 1}, []layer{{7, History{{1, 2}, {3, 9}}}}},
		{Range{2, 3}, []layer{{8, History{{3, 9}}}, {7, History{{1, 2}}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestDamagedRecords refuses records that the code could not work with, by name.
func TestDamagedRecords(t *testing.T) {
	good := string(sampleRecord(t))
	if err := decodeRecord("session/1", []byte(good), &sessionRecord{}); err != nil {
		t.Fatal(err)
	}
	for what, damaged := range map[string]string{
		"no JSON":        good[:len(good)/2],
		"no parts":       `{"range":{"first":0,"last":3}}`,
		"a gap":          strings.Replace(good, `"first":2`, `"first":3`, 1),
		"too many":       strings.Replace(good, `"first":2,"last":3`, `"first":2,"last":4`, 1),
		"no layers":      strings.Replace(good, `"layers":[`, `"layers":[],"x":[`, 1),
		"no row space":   strings.Replace(good, `"space":7`, `"space":0`, 1),
		"other types":    strings.Replace(good, `"parts":[`, `"parts":7,"x":[`, 1),
		"negative group": strings.Replace(good, `"first":0`, `"first":-1`, 1),
	} {
		if damaged == good {
			t.Errorf("%s: not damaged", what)
		}
		if err := decodeRecord("session/1", []byte(damaged), &sessionRecord{}); err == nil || !strings.Contains(err.Error(), "session/1") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := decodeLane(make([]byte, laneBytes-1)); err == nil {
		t.Error("a lane that was cut off")
	}
}

// FuzzRecord reads damaged records: an error, or a record that every look-up can work with.
func FuzzRecord(f *testing.F) {
	f.Add(sampleRecord(f), uint16(0))
	f.Add([]byte(`{"range":{"first":0,"last":0},"parts":[{"first":0,"last":0,"layers":[]}]}`), uint16(0))
	f.Fuzz(func(t *testing.T, raw []byte, group uint16) {
		session, snapshot := &sessionRecord{}, &snapshotRecord{}
		c := newCatalog()
		if decodeRecord("session/1", raw, session) == nil {
			c.sessions[1] = session
			a := &attached{record: session}
			a.setParts(session.Parts)
			if i, err := a.partOf(group); err == nil {
				_ = session.Parts[i].firstStamp()
				_ = session.Parts[i].Layers[0].History.sees(stamp{1, 1})
			}
		}
		if decodeRecord("snapshot/1", raw, snapshot) == nil {
			c.snapshots["1"] = snapshot
			_ = snapshot.info()
		}
		_ = c.views(7, group, 0)
		if l, err := decodeLane(raw); err == nil && len(l.encode()) != len(raw) {
			t.Error("a lane changed its size")
		}
	})
}

// TestRowSpaceFullOfStates registers a state where all numbers are taken: it must not get that of another one.
func TestRowSpaceFullOfStates(t *testing.T) {
	st := memory.New()
	l := openLineage(t, st, Options{})
	s := openForRace(t, l, "a", nil)
	id := s.parts[0].Layers[0].Space
	space := *l.catalog.spaces[id]
	for i := len(space.States); i <= maxStateNumber; i++ {
		space.States = append(space.States, StateInfo{uint16(i), fmt.Sprint("state", i), KindValue})
	}
	_, err := st.Update(t.Context(), func(tx store.Tx) error { return writeRecord(tx, spaceKey(id), &space) })
	must(t, err)
	if _, err := s.RegisterState(t.Context(), "one too many", KindValue); !errors.Is(err, ErrInvalid) {
		t.Errorf("error %v, number %v", err, s.states[len(s.states)-1].numbers)
	}
	if _, err := s.RegisterState(t.Context(), fmt.Sprint("state", maxStateNumber), KindValue); err != nil {
		t.Error(err)
	}
}
