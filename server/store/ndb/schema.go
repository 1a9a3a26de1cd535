package ndb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// schemaVersion is the version that this program creates and understands.
const schemaVersion = 1

// Widths of columns. They are part of the schema: changing one needs a new schema version.
const (
	// inlineKey is the longest key that is stored as it is; a longer one is stored as its first
	// inlineKey bytes and a hash.
	inlineKey = 768
	hashBytes = 32
	// inlineValue is what a row holds of its value (or key and value if the key is long).
	inlineValue = 2000
	// chunkBytes is what each chunk row holds of the rest: two of them fill an NDB page of 32 KiB.
	chunkBytes = 16000
)

// migration leads from version to-1 to version to.
type migration struct {
	to         int
	statements []string // with the words ENGINE_OPTIONS(columns) replaced for the engine
}

func migrations() []migration {
	return []migration{{to: 1, statements: []string{
		`CREATE TABLE IF NOT EXISTS state_row (
  space     BIGINT UNSIGNED   NOT NULL,
  key_group SMALLINT UNSIGNED NOT NULL,
  state     SMALLINT UNSIGNED NOT NULL,
  k         VARBINARY(800)    NOT NULL COMMENT 'the key, or its first 768 bytes and their SHA-256',
  more      VARBINARY(20)     NULL     COMMENT 'NULL, or: chunk tag, length of key and value, length of key',
  v         VARBINARY(2000)   NOT NULL COMMENT 'the value, or the first part of key and value',
  PRIMARY KEY (space, key_group, state, k)
) PARTITIONED(space, key_group)`,
		`CREATE TABLE IF NOT EXISTS chunk (
  space     BIGINT UNSIGNED   NOT NULL,
  key_group SMALLINT UNSIGNED NOT NULL,
  tag       BIGINT UNSIGNED   NOT NULL,
  n         INT UNSIGNED      NOT NULL,
  v         VARBINARY(16000)  NOT NULL,
  PRIMARY KEY (space, key_group, tag, n)
) PARTITIONED(space, key_group)`,
		`CREATE TABLE IF NOT EXISTS meta (
  name VARBINARY(768)  NOT NULL,
  more VARBINARY(20)   NULL,
  v    VARBINARY(2000) NOT NULL,
  PRIMARY KEY (name)
) PARTITIONED(name)`,
		`CREATE TABLE IF NOT EXISTS long_state (
  space BIGINT UNSIGNED   NOT NULL,
  state SMALLINT UNSIGNED NOT NULL,
  PRIMARY KEY (space, state)
) PARTITIONED(space, state)`,
		`CREATE TABLE IF NOT EXISTS server_commit (
  writer BIGINT UNSIGNED NOT NULL COMMENT 'one run of one server',
  slot   INT UNSIGNED    NOT NULL COMMENT '0: durability probe; others: transactions',
  seq    BIGINT UNSIGNED NOT NULL COMMENT 'the last transaction of the slot',
  at     BIGINT UNSIGNED NOT NULL COMMENT 'Unix time in seconds',
  PRIMARY KEY (writer, slot)
) PARTITIONED(writer, slot)`,
		`CREATE TABLE IF NOT EXISTS schema_info (
  id      TINYINT UNSIGNED NOT NULL,
  version INT UNSIGNED     NOT NULL,
  PRIMARY KEY (id)
) PARTITIONED(id)`,
	}}}
}

// statementFor fills in what differs between the engines.
func statementFor(engine Engine, statement string) string {
	before, rest, ok := strings.Cut(statement, "PARTITIONED(")
	if !ok {
		return statement
	}
	columns, after, _ := strings.Cut(rest, ")")
	if engine == EngineNDB {
		// READ_BACKUP: a read goes to the closest replica, and a commit is complete on all replicas
		// before it is answered. It is the server's default; here it is not left to chance.
		return fmt.Sprintf("%sENGINE=NDBCLUSTER DEFAULT CHARSET=binary COMMENT='NDB_TABLE=READ_BACKUP=1' PARTITION BY KEY (%s)%s", before, columns, after)
	}
	return before + "ENGINE=InnoDB DEFAULT CHARSET=binary ROW_FORMAT=DYNAMIC" + after
}

// Schema returns the SQL that creates the tables of the current version, for administrators who run
// it by hand. The server then needs no right to create tables.
func Schema(engine Engine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "-- FlinkNDB's tables, schema version %d, for the engine %s. Run it in the database that the store URL names.\n", schemaVersion, engine)
	for _, m := range migrations() {
		for _, s := range m.statements {
			b.WriteString(statementFor(engine, s))
			b.WriteString(";\n")
		}
	}
	b.WriteString(setVersion(schemaVersion) + ";\n")
	return b.String()
}

func setVersion(version int) string {
	return fmt.Sprintf("REPLACE INTO schema_info (id, version) VALUES (1, %d)", version)
}

// ensureSchema creates or upgrades the tables, and refuses what this program cannot work with.
// Several servers may do it at once: every statement may be repeated.
func ensureSchema(ctx context.Context, db *sql.DB, cfg *config) error {
	version, err := readVersion(ctx, db)
	if err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("the tables in database %s have schema version %d, which is newer than this program's, %d: use a FlinkNDB at least as new as the one that upgraded them",
			cfg.database, version, schemaVersion)
	}
	for _, m := range migrations() {
		if m.to <= version {
			continue
		}
		for _, s := range append(m.statements, setVersion(m.to)) {
			if err := createTable(ctx, db, statementFor(cfg.engine, s)); err != nil {
				return fmt.Errorf("creating the tables in database %s: %w", cfg.database, err)
			}
		}
	}
	return checkEngine(ctx, db, cfg)
}

// createTable runs a statement of the schema. NDB tells the reason of a failure in warnings only.
func createTable(ctx context.Context, db *sql.DB, statement string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, statement)
	if err == nil {
		return nil
	}
	rows, warnErr := conn.QueryContext(ctx, "SHOW WARNINGS")
	if warnErr != nil {
		return err
	}
	defer rows.Close()
	var level, message string
	var code int
	for rows.Next() {
		if rows.Scan(&level, &code, &message) == nil {
			err = fmt.Errorf("%w; %s %d: %s", err, strings.ToLower(level), code, message)
		}
	}
	return err
}

// readVersion returns the schema's version; 0 = no tables yet.
func readVersion(ctx context.Context, db *sql.DB) (int, error) {
	var n int
	err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'schema_info'").Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("looking for the tables: %w", err)
	}
	if n == 0 {
		return 0, nil
	}
	var version int
	err = db.QueryRowContext(ctx, "SELECT version FROM schema_info WHERE id = 1").Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil // another server is creating the tables at this moment
	}
	if err != nil {
		return 0, fmt.Errorf("reading the schema's version: %w", err)
	}
	return version, nil
}

func checkEngine(ctx context.Context, db *sql.DB, cfg *config) error {
	var found string
	err := db.QueryRowContext(ctx, "SELECT UPPER(engine) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'state_row'").Scan(&found)
	if err != nil {
		return fmt.Errorf("reading the engine of table state_row: %w", err)
	}
	want := map[Engine]string{EngineNDB: "NDBCLUSTER", EngineInnoDB: "INNODB"}[cfg.engine]
	if found != want {
		return fmt.Errorf("the tables in database %s are of the engine %s, but the store URL says engine=%s: use another database or engine=%s",
			cfg.database, found, cfg.engine, map[string]string{"NDBCLUSTER": "ndb", "INNODB": "innodb"}[found])
	}
	return nil
}

// createDatabase makes the database if it is not there and the account may.
func createDatabase(ctx context.Context, db *sql.DB, cfg *config) error {
	if _, err := db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS `"+cfg.database+"` DEFAULT CHARACTER SET binary"); err != nil {
		return fmt.Errorf("creating database %s: %w", cfg.database, err)
	}
	return nil
}
