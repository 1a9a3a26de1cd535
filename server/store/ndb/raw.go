package ndb

import (
	"context"
	"database/sql"
)

// OpenDB opens connections of its own to one of the store's servers, prepared as the store's are.
// The benchmark compares the store with plain SQL on them.
func (s *Store) OpenDB(size int) *sql.DB {
	return openPool(s.hosts.pick().connect, size)
}

// TableLike creates an empty table like state_row, replacing an older one of this name.
func (s *Store) TableLike(ctx context.Context, name string) error {
	db := s.hosts.pick().db
	for _, statement := range []string{"DROP TABLE IF EXISTS " + name, "CREATE TABLE " + name + " LIKE state_row"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return explain("creating table "+name, err)
		}
	}
	return nil
}
