package ndb

import (
	"errors"
	"fmt"
	"os"
	"testing"
)

// Environment variables that switch on tests which start real servers; they take minutes.
const (
	TestNDBVariable    = "FLINKNDB_TEST_NDB"
	TestInnoDBVariable = "FLINKNDB_TEST_INNODB"
)

// Require skips the test unless the environment variable is set to 1.
func Require(t testing.TB, variable string) {
	t.Helper()
	if os.Getenv(variable) != "1" {
		t.Skipf("starts real database servers: set %s=1 to run it", variable)
	}
}

// SkipIfAbsent skips the test, loudly, if err says that the servers' programs are not installed.
func SkipIfAbsent(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNotInstalled) || errors.Is(err, ErrNoMariaDB) {
		fmt.Fprintf(os.Stderr, "\n*** %s IS NOT TESTED: %v ***\n\n", t.Name(), err)
		t.Skip(err)
	}
}
