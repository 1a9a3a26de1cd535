package ndb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// session is one connection, used by one goroutine. It speaks to the driver directly: what
// database/sql does to each column of each row would cost as much as the rest of the client.
type session struct {
	ctx  context.Context
	conn *sql.Conn
	// maxBytes is how many bytes of literals go into one statement.
	maxBytes int
	metrics  *metrics
}

// withSession runs fn on a connection of the pool.
func (s *Store) withSession(ctx context.Context, db *sql.DB, fn func(*session) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	c := &session{ctx: ctx, conn: conn, maxBytes: s.maxBytes, metrics: s.metrics}
	err = fn(c)
	if err != nil && brokenConnection(err) {
		c.discard()
	}
	return err
}

// exec runs a statement and returns how many rows it changed.
func (c *session) exec(statement string) (int, error) {
	var affected int64
	err := c.conn.Raw(func(dc any) error {
		result, err := dc.(driver.ExecerContext).ExecContext(c.ctx, statement, nil)
		if err != nil {
			return err
		}
		affected, err = result.RowsAffected()
		return err
	})
	return int(affected), err
}

// query runs a statement and calls each for every row of its result. Byte slices among the columns
// are valid during the call only. After an error of each the rest of the result is skipped.
func (c *session) query(statement string, each func(columns []driver.Value) error) error {
	return c.queryRows(statement, func(_ []string, columns []driver.Value) error { return each(columns) })
}

// queryNamed is query for results whose columns differ between servers.
func (c *session) queryNamed(statement string, each func(columns map[string]driver.Value) error) error {
	return c.queryRows(statement, func(names []string, columns []driver.Value) error {
		named := make(map[string]driver.Value, len(names))
		for i, name := range names {
			named[name] = columns[i]
		}
		return each(named)
	})
}

func (c *session) queryRows(statement string, each func(names []string, columns []driver.Value) error) error {
	return c.conn.Raw(func(dc any) (err error) {
		rows, err := dc.(driver.QueryerContext).QueryContext(c.ctx, statement, nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		names := rows.Columns()
		columns := make([]driver.Value, len(names))
		for {
			if err := rows.Next(columns); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if err := each(names, columns); err != nil {
				return err
			}
		}
	})
}

// discard closes the connection instead of returning it to the pool: its transaction, if one is
// open, ends with it.
func (c *session) discard() {
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
}

// asUint reads a column of an integer type.
func asUint(v driver.Value) (uint64, error) {
	switch v := v.(type) {
	case int64:
		if v < 0 {
			return 0, fmt.Errorf("column holds %d; allowed are numbers from 0", v)
		}
		return uint64(v), nil
	case uint64:
		return v, nil
	case []byte:
		return strconv.ParseUint(string(v), 10, 64)
	}
	return 0, fmt.Errorf("column holds a %T instead of a number", v)
}

// asUint16 and asUint32 read columns of smaller types.
func asUint16(v driver.Value) (uint16, error) {
	n, err := asUint(v)
	if err == nil && n > math.MaxUint16 {
		err = fmt.Errorf("column holds %d; allowed are 0 to %d", n, math.MaxUint16)
	}
	return uint16(n), err
}

func asUint32(v driver.Value) (uint32, error) {
	n, err := asUint(v)
	if err == nil && n > math.MaxUint32 {
		err = fmt.Errorf("column holds %d; allowed are 0 to %d", n, uint32(math.MaxUint32))
	}
	return uint32(n), err
}

// asBytes reads a binary column; nil stands for NULL.
func asBytes(v driver.Value) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case []byte:
		return v, nil
	case string:
		return []byte(v), nil
	}
	return nil, fmt.Errorf("column holds a %T instead of bytes", v)
}

// clone copies a column that is not NULL; the copy is never nil.
func clone(b []byte) []byte {
	c := make([]byte, len(b))
	copy(c, b)
	return c
}
