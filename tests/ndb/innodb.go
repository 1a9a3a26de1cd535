package ndb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/flinkndb/flinkndb/tests/freeport"
)

// Plain is one MySQL or MariaDB server without NDB, for the engine innodb.
type Plain struct {
	// Version is what the server says of itself.
	Version string
	dir     string
	port    int
	server  *process
}

// ErrNoMariaDB says that no MariaDB server is installed; its message says how to get it.
var ErrNoMariaDB = errors.New("no MariaDB server found: install it (Debian: apt-get install mariadb-server)")

// StartMariaDB starts a private MariaDB server in dir, which must be empty or absent.
func StartMariaDB(ctx context.Context, dir string, args ...string) (*Plain, error) {
	daemon, err := lookPath("mariadbd", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, ErrNoMariaDB
	}
	install, err := lookPath("mariadb-install-db", "/usr/bin/mariadb-install-db")
	if err != nil {
		return nil, ErrNoMariaDB
	}
	p, err := newPlain(dir)
	if err != nil {
		return nil, err
	}
	// A server that starts removes what it takes for leftovers in the common folder: tables of another one.
	temporary := filepath.Join(p.dir, "tmp")
	if err := os.MkdirAll(temporary, 0o755); err != nil {
		return nil, fmt.Errorf("folder for MariaDB's temporary tables: %w", err)
	}
	out, err := exec.CommandContext(ctx, install, "--no-defaults", "--user="+userName(), "--datadir="+p.data(), "--tmpdir="+temporary,
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initializing MariaDB: %w: %s", err, out)
	}
	p.server = &process{Name: "mariadbd", Path: daemon, Args: append([]string{
		"--no-defaults", "--user=" + userName(), "--datadir=" + p.data(), "--tmpdir=" + temporary, "--socket=" + p.Socket(),
		fmt.Sprintf("--port=%d", p.port), "--bind-address=127.0.0.1", "--pid-file=" + filepath.Join(p.dir, "server.pid"), "--skip-log-bin",
	}, args...)}
	return p, p.Start(ctx)
}

// StartMySQL starts a private MySQL server, without NDB, in dir, which must be empty or absent. Its
// program is the one that FindBinaries finds.
func StartMySQL(ctx context.Context, dir string, args ...string) (*Plain, error) {
	bin, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newPlain(dir)
	if err != nil {
		return nil, err
	}
	if err := bin.initialize(ctx, p.data()); err != nil {
		return nil, err
	}
	p.server = &process{Name: "mysqld", Path: bin.MySQL,
		Args: append(append(bin.mysqldArgs(p.data(), p.port), "--skip-log-bin"), args...)}
	return p, p.Start(ctx)
}

func newPlain(dir string) (*Plain, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ports, err := freeport.Several(1)
	if err != nil {
		return nil, err
	}
	return &Plain{dir: dir, port: ports[0]}, nil
}

func (p *Plain) data() string { return filepath.Join(p.dir, "data") }

// Socket is the path of the server's Unix socket.
func (p *Plain) Socket() string { return filepath.Join(p.data(), "mysql.sock") }

// Start starts the server, also again after Kill, and waits until it answers.
func (p *Plain) Start(ctx context.Context) error {
	if err := p.server.start(p.dir); err != nil {
		return err
	}
	err := p.server.await(ctx, p.dir, func(ctx context.Context) error {
		return withServer(ctx, p.port, func(ctx context.Context, db *sql.DB) error {
			return db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&p.Version)
		})
	})
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

// Kill kills the server, as a crash would.
func (p *Plain) Kill() error { return p.server.kill() }

// Stop ends the server in order.
func (p *Plain) Stop() error { return p.server.terminate(30 * time.Second) }

// URL is a store URL for a database of this server.
func (p *Plain) URL(database string) string {
	return fmt.Sprintf("mysql://root@127.0.0.1:%d/%s?engine=innodb", p.port, database)
}

// DSN is the server's address in the form of go-sql-driver/mysql, without a database.
func (p *Plain) DSN() string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", p.port) }

func lookPath(name, usual string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	_, err := os.Stat(usual)
	return usual, err
}
