package pebble

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/server/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := Open(t.TempDir(), Options{Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
