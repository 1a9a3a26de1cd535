package pebble

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/flinkndb/flinkndb/server/store"
	"github.com/flinkndb/flinkndb/tests/smalldisk"
)

// TestFullDisk has a process write until its disk is full, and a second one open the store there: both end and
// say where. Once there is room again, everything is there that had been reported as durable.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		writeLargeForever(t, dir)
	}
	disk, err := smalldisk.Mount(t.TempDir(), 192<<20)
	if errors.Is(err, smalldisk.ErrNotPermitted) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := disk.Unmount(); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(disk.Dir(), "store")
	last := writeUntilFull(t, dir)
	if last < 10 {
		t.Fatalf("only %d rows fit: the test shows nothing", last)
	}
	if err := disk.Fill(); err != nil {
		t.Fatal(err)
	}
	writeUntilFull(t, dir)
	if err := disk.Free(); err != nil {
		t.Fatal(err)
	}
	// An operator makes room by enlarging the disk, or by removing what does not belong there.
	if err := disk.Resize(384 << 20); err != nil {
		t.Fatal(err)
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
		values, err := s.Get(t.Context(), []store.RowKey{rowKey(i)})
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(values[0], largeValue(i)) {
			t.Fatalf("row %d of %d is lost", i, last)
		}
	}
}

// writeUntilFull runs a process that writes, demands that it ends with a message that names the folder, and returns
// the number of the last row that is durable.
func writeUntilFull(t *testing.T, dir string) (last int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestFullDisk$")
	child.Env = append(os.Environ(), childDir+"="+dir)
	var messages bytes.Buffer
	child.Stderr = &messages
	out, err := child.Output()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 1 {
		t.Fatalf("on a full disk the process ended with %v: %s", err, &messages)
	}
	for _, word := range []string{dir, "no space left"} {
		if !strings.Contains(messages.String(), word) {
			t.Errorf("the message does not say %q: %s%s", word, &messages, out)
		}
	}
	for _, line := range strings.Fields(string(out)) {
		if n, err := strconv.Atoi(line); err == nil {
			last = n
		}
	}
	return last
}

func largeValue(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 1<<20) }

// writeLargeForever writes rows of a megabyte, and prints the number of each that is durable.
func writeLargeForever(t *testing.T, dir string) {
	log := zerolog.New(os.Stderr)
	s, err := Open(dir, Options{Log: log})
	if err != nil {
		log.Error().Err(err).Msg("open")
		os.Exit(1)
	}
	for i := 1; ; i++ {
		commit, err := s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Put([]store.Row{{RowKey: rowKey(i), Value: largeValue(i)}})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := commit.Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString(strconv.Itoa(i) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
}
