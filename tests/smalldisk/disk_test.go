package smalldisk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestFillAndFree(t *testing.T) {
	const size = 3<<20 + 8<<10
	disk, err := Mount(t.TempDir(), size)
	if errors.Is(err, ErrNotPermitted) {
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
	write := func() error {
		return os.WriteFile(filepath.Join(disk.Dir(), "file"), bytes.Repeat([]byte{1}, 2<<20), 0o600)
	}
	for range 2 {
		if err := disk.Fill(); err != nil {
			t.Fatal(err)
		}
		if used, err := disk.Used(); err != nil || used != size {
			t.Fatalf("%d bytes are taken, %v; filled are %d", used, err, size)
		}
		if err := write(); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("writing to a full disk: %v", err)
		}
		if err := disk.Free(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(disk.Dir(), "file")); err != nil {
			t.Fatal(err)
		}
	}
}
