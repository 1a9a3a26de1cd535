package ndb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNotInstalled says that no NDB binaries were found; its message says how to get them.
var ErrNotInstalled = errors.New(`no MySQL NDB Cluster found.
FlinkNDB looks for the programs ndb_mgmd, ndbmtd and mysqld (built with NDB) in
  1. $NDB_HOME/bin
  2. the directories of $PATH ($PATH's mysqld must know the engine ndbcluster)
  3. ../shared/ndb/ndb-*-linux-x86_64.tar.xz beside the repository (unpacked into .cache/ndb)
To get it: take the generic Linux tarball "MySQL NDB Cluster" from https://dev.mysql.com/downloads/cluster/,
unpack it anywhere and set NDB_HOME to that directory; or install the packages
mysql-cluster-community-management-server, -data-node and -server from MySQL's APT or YUM repository`)

// Binaries says where the programs of a MySQL NDB Cluster are.
type Binaries struct {
	Management string // ndb_mgmd
	DataNode   string // ndbmtd
	Client     string // ndb_mgm; empty if absent
	MySQL      string // mysqld
	// Share holds error messages and character sets; empty if mysqld finds its own.
	Share string
}

// FindBinaries looks for NDB in NDB_HOME, PATH and ../shared/ndb, in this order. It returns an
// error that wraps ErrNotInstalled when there is none.
func FindBinaries(ctx context.Context) (Binaries, error) {
	if home := os.Getenv("NDB_HOME"); home != "" {
		b, err := binariesIn(home)
		if err != nil {
			return Binaries{}, fmt.Errorf("NDB_HOME=%s: %w", home, err)
		}
		return b, nil
	}
	if b, err := binariesInPath(); err == nil {
		return b, nil
	}
	root, err := repositoryRoot()
	if err != nil {
		return Binaries{}, fmt.Errorf("%w (%v)", ErrNotInstalled, err)
	}
	home := filepath.Join(root, ".cache", "ndb")
	if b, err := binariesIn(home); err == nil {
		return b, nil
	}
	archives, err := filepath.Glob(filepath.Join(root, "..", "shared", "ndb", "ndb-*-linux-x86_64.tar.xz"))
	if err != nil || len(archives) == 0 {
		return Binaries{}, ErrNotInstalled
	}
	if err := unpack(ctx, archives[len(archives)-1], home); err != nil {
		return Binaries{}, err
	}
	return binariesIn(home)
}

func binariesIn(home string) (Binaries, error) {
	b := Binaries{
		Management: filepath.Join(home, "bin", "ndb_mgmd"),
		DataNode:   filepath.Join(home, "bin", "ndbmtd"),
		Client:     filepath.Join(home, "bin", "ndb_mgm"),
		MySQL:      filepath.Join(home, "bin", "mysqld"),
		Share:      filepath.Join(home, "share"),
	}
	for _, p := range []string{b.Management, b.DataNode, b.MySQL} {
		if _, err := os.Stat(p); err != nil {
			return Binaries{}, fmt.Errorf("%w (%v)", ErrNotInstalled, err)
		}
	}
	if _, err := os.Stat(b.Client); err != nil {
		b.Client = ""
	}
	if _, err := os.Stat(filepath.Join(b.Share, "charsets")); err != nil {
		b.Share = ""
	}
	return b, nil
}

func binariesInPath() (Binaries, error) {
	var b Binaries
	for name, to := range map[string]*string{"ndb_mgmd": &b.Management, "ndbmtd": &b.DataNode, "mysqld": &b.MySQL} {
		p, err := exec.LookPath(name)
		if err != nil {
			return Binaries{}, fmt.Errorf("%w (%v)", ErrNotInstalled, err)
		}
		*to = p
	}
	if p, err := exec.LookPath("ndb_mgm"); err == nil {
		b.Client = p
	}
	return b, nil
}

// repositoryRoot is the closest directory upwards that holds go.mod.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("not inside the repository: no go.mod in any parent directory")
		}
		dir = up
	}
}

// unpack extracts an archive into dir in one step, so that an interrupted or concurrent call leaves
// nothing half done behind.
func unpack(ctx context.Context, archive, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "ndb-unpack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	out, err := exec.CommandContext(ctx, "tar", "-C", tmp, "-xJf", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("unpacking %s: %w: %s", archive, err, out)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	err = os.Rename(tmp, dir)
	if err != nil && errors.Is(err, os.ErrExist) {
		return nil // another process was faster
	}
	return err
}
