package pebble

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
)

// childDir tells the test binary that it is the process to be killed.
const childDir = "FLINKNDB_TEST_CHILD_DIR"

// TestKillKeepsWhatIsDurable kills a process that writes, and looks for every row whose commit it had
// reported as durable.
func TestKillKeepsWhatIsDurable(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		writeForever(t, dir)
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run", "^TestKillKeepsWhatIsDurable$")
	child.Env = append(os.Environ(), childDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines, last := bufio.NewScanner(out), 0
	for lines.Scan() && last < 2000 {
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()   // it was killed
	for lines.Scan() { // what it had reported before the kill counts too
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			last = n
		}
	}
	s, err := Open(dir, Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := 1; i <= last; i++ {
		values, err := s.Get(context.Background(), []store.RowKey{rowKey(i)})
		if err != nil {
			t.Fatal(err)
		}
		if string(values[0]) != strconv.Itoa(i) {
			t.Fatalf("row %d of %d is lost: %q", i, last, values[0])
		}
	}
}

func rowKey(i int) store.RowKey { return store.RowKey{Space: 1, Key: fmt.Append(nil, i)} }

func writeForever(t *testing.T, dir string) {
	s, err := Open(dir, Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; ; i++ {
		commit, err := s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Put([]store.Row{{RowKey: rowKey(i), Value: []byte(strconv.Itoa(i))}})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := commit.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		fmt.Println(i)
	}
}
