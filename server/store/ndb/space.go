package ndb

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync"
	"time"
)

const (
	// dropRows is how many rows one statement of DropSpace removes.
	dropRows = 2000
	// dropParallel is how many key groups DropSpace works on at once.
	dropParallel = 2
	// statisticsAge is how old the index statistics behind SpaceBytes may be.
	statisticsAge = 10 * time.Minute
	// sampleRows is how many rows SpaceBytes looks at.
	sampleRows = 500
)

// rowOverheadBytes is what a row takes in NDB's memory besides its key and value, both indexes
// included (measured; see docs/ndb.md).
const rowOverheadBytes = 90

// DropSpace implements store.Store. It removes one key group after the other, in small transactions.
func (s *Store) DropSpace(ctx context.Context, space uint64) error {
	if space == 0 {
		return fmt.Errorf("row space: 0 cannot be dropped")
	}
	for _, table := range []string{"state_row", "chunk"} {
		if err := s.dropFrom(ctx, table, space); err != nil {
			return err
		}
	}
	return s.withRetry(ctx, "drop", func(ctx context.Context, h *host) error {
		return s.withSession(ctx, h.db, func(c *session) error {
			_, err := c.exec(fmt.Sprintf("DELETE FROM long_state WHERE space=%d", space))
			return err
		})
	})
}

func (s *Store) dropFrom(ctx context.Context, table string, space uint64) error {
	groups := make(chan uint64)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, dropParallel+1)
	var wg sync.WaitGroup
	for w := range dropParallel {
		wg.Go(func() {
			for group := range groups {
				if errs[w] = s.dropGroup(ctx, table, space, group); errs[w] != nil {
					cancel()
					return
				}
			}
		})
	}
	errs[dropParallel] = s.eachGroup(ctx, table, space, groups)
	close(groups)
	wg.Wait()
	return firstCause(errs)
}

// eachGroup sends the key groups that have rows, in ascending order.
func (s *Store) eachGroup(ctx context.Context, table string, space uint64, groups chan<- uint64) error {
	for next := uint64(0); ; {
		group, found := uint64(0), false
		err := s.withRetry(ctx, "drop", func(ctx context.Context, h *host) error {
			return s.withSession(ctx, h.db, func(c *session) error {
				return c.query(fmt.Sprintf("SELECT key_group FROM %s WHERE space=%d AND key_group>=%d ORDER BY space,key_group LIMIT 1", table, space, next),
					func(columns []driver.Value) (err error) {
						group, err = asUint(columns[0])
						found = true
						return err
					})
			})
		})
		if err != nil || !found {
			return err
		}
		select {
		case groups <- group:
		case <-ctx.Done():
			return ctx.Err()
		}
		next = group + 1
	}
}

func (s *Store) dropGroup(ctx context.Context, table string, space, group uint64) error {
	for {
		removed := 0
		err := s.withRetry(ctx, "drop", func(ctx context.Context, h *host) error {
			return s.withSession(ctx, h.db, func(c *session) (err error) {
				removed, err = c.exec(fmt.Sprintf("DELETE FROM %s WHERE space=%d AND key_group=%d LIMIT %d", table, space, group, dropRows))
				return err
			})
		})
		if err != nil {
			return err
		}
		s.metrics.statement("drop", removed)
		if removed < dropRows {
			return nil
		}
	}
}

// SpaceBytes implements store.Store: the number of rows by the server's index statistics, times the
// size of some of them. Small spaces are counted.
func (s *Store) SpaceBytes(ctx context.Context, space uint64) (total uint64, err error) {
	s.refreshStatistics(ctx)
	err = s.withRetry(ctx, "space_bytes", func(ctx context.Context, h *host) error {
		return s.withSession(ctx, h.db, func(c *session) error {
			rows, err := c.tableBytes("state_row", "LENGTH(k)+LENGTH(v)", space)
			if err != nil {
				return err
			}
			chunks, err := c.tableBytes("chunk", "LENGTH(v)", space)
			total = rows + chunks
			return err
		})
	})
	return total, err
}

// refreshStatistics has NDB look at the tables' indexes, which it does not do often by itself: a
// second of work at most once in statisticsAge. Failing makes estimates worse, nothing else.
func (s *Store) refreshStatistics(ctx context.Context) {
	now := int64(monotonic() + statisticsAge) // so that the first look is due
	last := s.analyzed.Load()
	if s.cfg.engine != EngineNDB || now-last < int64(statisticsAge) || !s.analyzed.CompareAndSwap(last, now) {
		return
	}
	err := s.withSession(ctx, s.hosts.pick().aux, func(c *session) error {
		return c.query("ANALYZE NO_WRITE_TO_BINLOG TABLE state_row, chunk", func([]driver.Value) error { return nil })
	})
	if err != nil {
		s.log.Debug().Err(err).Msg("statistics are not fresh")
	}
}

// tableBytes estimates the bytes that a space takes in one table.
func (c *session) tableBytes(table, size string, space uint64) (uint64, error) {
	var rows, bytes uint64
	err := c.query(fmt.Sprintf("SELECT COUNT(*), CAST(COALESCE(SUM(b),0) AS UNSIGNED) FROM (SELECT %s AS b FROM %s WHERE space=%d LIMIT %d) some", size, table, space, sampleRows),
		func(columns []driver.Value) (err error) {
			if rows, err = asUint(columns[0]); err != nil {
				return err
			}
			bytes, err = asUint(columns[1])
			return err
		})
	if err != nil || rows == 0 {
		return 0, err
	}
	bytes += rows * rowOverheadBytes
	if rows < sampleRows {
		return bytes, nil
	}
	estimate, err := c.estimateRows(table, space)
	return max(estimate, rows) * bytes / rows, err
}

// estimateRows asks the optimizer how many rows it expects.
func (c *session) estimateRows(table string, space uint64) (rows uint64, err error) {
	err = c.queryNamed(fmt.Sprintf("EXPLAIN /*!80000 FORMAT=TRADITIONAL */ SELECT space FROM %s WHERE space=%d", table, space), func(columns map[string]driver.Value) error {
		if columns["rows"] == nil {
			return nil
		}
		rows, err = asUint(columns["rows"])
		return err
	})
	return rows, err
}

// Bytes implements store.Store: what all tables take, by the server's statistics.
func (s *Store) Bytes(ctx context.Context) (total uint64, err error) {
	err = s.withRetry(ctx, "bytes", func(ctx context.Context, h *host) error {
		return s.withSession(ctx, h.db, func(c *session) error {
			return c.query("SELECT CAST(COALESCE(SUM(data_length+index_length),0) AS UNSIGNED) FROM information_schema.tables WHERE table_schema=DATABASE()",
				func(columns []driver.Value) (err error) {
					total, err = asUint(columns[0])
					return err
				})
		})
	})
	return total, err
}
