package ndb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// leastPacket is the smallest max_allowed_packet that statements of a useful size fit into.
	leastPacket = 1 << 20
	// mostBytes bounds the literals of one statement where the server would take more.
	mostBytes = 2 << 20
	// packetOverhead is what a statement holds besides literals, with a margin.
	packetOverhead = 128 << 10
	// marksKept is how long the marks of a server that died are kept.
	marksKept = 7 * 24 * time.Hour
)

// prepare makes the store ready for use: database, tables, limits.
func (s *Store) prepare(ctx context.Context) error {
	err := s.withRetry(ctx, "open", func(ctx context.Context, h *host) error {
		if err := s.prepareOn(ctx, h); err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", s.Name(), err)
	}
	s.log.Info().Str("url", s.Name()).Int("statement_bytes", s.maxBytes).Int("transaction_operations", s.maxOperations).Msg("store is open")
	return nil
}

func (s *Store) prepareOn(ctx context.Context, h *host) error {
	if err := s.ensureDatabase(ctx, h); err != nil {
		return err
	}
	if err := s.checkServer(ctx, h.db); err != nil {
		return err
	}
	if err := ensureSchema(ctx, h.db, &s.cfg); err != nil {
		return err
	}
	if err := s.readPacketLimit(ctx); err != nil {
		return err
	}
	if s.cfg.engine == EngineNDB {
		s.maxOperations = readMaxOperations(ctx, h.db)
	}
	_, err := h.db.ExecContext(ctx, fmt.Sprintf("DELETE FROM server_commit WHERE at < %d", time.Now().Add(-marksKept).Unix()))
	return err
}

// ensureDatabase creates the database where it is missing.
func (s *Store) ensureDatabase(ctx context.Context, h *host) error {
	err := h.db.PingContext(ctx)
	var my *mysql.MySQLError
	if !errors.As(err, &my) || my.Number != erBadDB {
		return err
	}
	tlsConf, err := s.cfg.tls.forAddress(h.address)
	if err != nil {
		return err
	}
	connect, err := newConnector(&s.cfg, h.address, "", tlsConf)
	if err != nil {
		return err
	}
	db := sql.OpenDB(connect)
	defer db.Close()
	return createDatabase(ctx, db, &s.cfg)
}

// checkServer refuses servers that cannot do what the URL asks for.
func (s *Store) checkServer(ctx context.Context, db *sql.DB) error {
	if s.cfg.engine == EngineInnoDB {
		return s.checkInnoDB(ctx, db)
	}
	var support string
	err := db.QueryRowContext(ctx, "SELECT support FROM information_schema.engines WHERE engine = 'ndbcluster'").Scan(&support)
	if errors.Is(err, sql.ErrNoRows) || err == nil && support != "YES" && support != "DEFAULT" {
		return fmt.Errorf("the MySQL server has no engine ndbcluster: start it with --ndbcluster, or use engine=innodb")
	}
	return err
}

// checkInnoDB warns of a server that does not keep what it has committed.
func (s *Store) checkInnoDB(ctx context.Context, db *sql.DB) error {
	var flush int
	if err := db.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit").Scan(&flush); err != nil {
		return err
	}
	if flush != 1 {
		s.log.Warn().Int("innodb_flush_log_at_trx_commit", flush).
			Msg("the MySQL server does not write each commit to its disk: a crash of its machine may lose checkpoints; set innodb_flush_log_at_trx_commit=1")
	}
	return nil
}

// readPacketLimit sets maxBytes from the smallest max_allowed_packet of the servers that answer.
func (s *Store) readPacketLimit(ctx context.Context) error {
	smallest := -1
	var last error
	for _, h := range s.hosts.all {
		var packet int
		if last = h.db.QueryRowContext(ctx, "SELECT @@max_allowed_packet").Scan(&packet); last != nil {
			h.markDown()
			continue
		}
		if packet < leastPacket {
			return fmt.Errorf("MySQL server %s: max_allowed_packet is %d; needed are at least %d (64M is a good value)", h.address, packet, leastPacket)
		}
		if smallest < 0 || packet < smallest {
			smallest = packet
		}
	}
	if smallest < 0 {
		return last
	}
	// Escaping at most doubles a literal.
	s.maxBytes = min(mostBytes, (smallest-packetOverhead)/2)
	return nil
}

// readMaxOperations returns how many rows a transaction may change according to the data nodes'
// configuration; 0 if the account may not read it.
func readMaxOperations(ctx context.Context, db *sql.DB) int {
	var limit int
	err := db.QueryRowContext(ctx, `SELECT MIN(CAST(v.config_value AS UNSIGNED)) FROM ndbinfo.config_values v
JOIN ndbinfo.config_params p ON v.config_param = p.param_number WHERE p.param_name = 'MaxNoOfConcurrentOperations'`).Scan(&limit)
	if err != nil {
		return 0
	}
	return limit
}

// removeMarks tidies server_commit when the server ends in order. Failing is harmless: old marks
// are removed by the next server that starts after a week.
func (s *Store) removeMarks() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	h := s.hosts.pick()
	err := s.withSession(ctx, h.aux, func(c *session) error {
		_, err := c.exec(fmt.Sprintf("DELETE FROM server_commit WHERE writer=%d", s.writer))
		return err
	})
	if err != nil && !errors.Is(err, driver.ErrBadConn) {
		s.log.Debug().Err(err).Msg("marks of this server stay in table server_commit for now")
	}
}

// firstCause returns the error that made the others give up.
func firstCause(errs []error) error {
	var first error
	for _, err := range errs {
		if err == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			return err
		}
		first = err
	}
	return first
}
