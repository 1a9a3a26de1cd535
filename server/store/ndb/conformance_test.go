package ndb

import (
	"testing"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/storetest"
)

func TestConformance(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			var last string // URL of the store that was opened last
			open := func(t *testing.T) store.Store {
				last = e.url(t)
				return openTest(t, last)
			}
			options := []storetest.Option{storetest.WithReopen(func(t *testing.T, _ store.Store) store.Store { return openTest(t, last) })}
			if e.name == "ndb" {
				options = append(options, storetest.WithReadCommitted())
			}
			storetest.Run(t, open, options...)
		})
	}
}
