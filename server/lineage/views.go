package lineage

import (
	"encoding/json"
	"fmt"

	"github.com/flinkndb/flinkndb/server/store"
)

// groupViews is who looks at a key group of a row space.
type groupViews struct {
	views  []History
	bottom bool // nothing lies below for any of them
}

// add collects how parts look at a key group of a row space.
func (g *groupViews) add(parts []part, space uint64, group uint16) {
	for i := range parts {
		if !parts[i].contains(group) {
			continue
		}
		for depth, l := range parts[i].Layers {
			if l.Space == space {
				g.views = addView(g.views, l.History)
				g.bottom = g.bottom && depth == len(parts[i].Layers)-1
			}
		}
	}
}

func addView(views []History, h History) []History {
	for _, known := range views {
		if known.equal(h) {
			return views
		}
	}
	return append(views, h)
}

// viewSet is the parts of all sessions and snapshots, as read in one transaction.
type viewSet [][]part

func readViews(tx store.Tx) (viewSet, error) {
	var views viewSet
	for _, prefix := range []string{snapshotPrefix, sessionPrefix} {
		metas, err := tx.ScanMeta(prefix)
		if err != nil {
			return nil, fmt.Errorf("read %s*: %w", prefix, err)
		}
		for _, m := range metas {
			var record struct {
				Parts []part `json:"parts"`
			}
			if err := json.Unmarshal(m.Value, &record); err != nil {
				return nil, fmt.Errorf("record %s: %w", m.Key, err)
			}
			views = append(views, record.Parts)
		}
	}
	return views, nil
}

func (v viewSet) sees(space uint64) bool {
	for _, parts := range v {
		for _, id := range spacesOf(parts) {
			if id == space {
				return true
			}
		}
	}
	return false
}

// of returns the views on a key group of a row space.
func (v viewSet) of(space uint64, group uint16) groupViews {
	seen := groupViews{bottom: true}
	for _, parts := range v {
		seen.add(parts, space, group)
	}
	return seen
}
