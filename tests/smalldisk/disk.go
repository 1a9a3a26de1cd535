// Package smalldisk makes a small file system in memory, for tests of what happens when a disk is full. Linux only.
package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotPermitted says that this process may not mount file systems: that takes root, and a container that allows it.
var ErrNotPermitted = errors.New("mounting a file system is not permitted here")

// Disk is a file system of its own. Methods are not for concurrent use.
type Disk struct {
	dir     string
	ballast string
}

// Mount makes a file system of so many bytes on a folder, which must be empty. It takes memory as it is filled.
func Mount(dir string, bytes int64) (*Disk, error) {
	err := syscall.Mount("flinkndb-test", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d,mode=0755", bytes))
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		return nil, fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	if err != nil {
		return nil, fmt.Errorf("mount a small file system on %s: %w", dir, err)
	}
	return &Disk{dir: dir, ballast: filepath.Join(dir, "ballast")}, nil
}

// Dir is where it is mounted.
func (d *Disk) Dir() string { return d.dir }

// Fill takes all the room that is left, to the last block.
func (d *Disk) Fill() (err error) {
	file, err := os.OpenFile(d.ballast, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	size := info.Size()
	for _, step := range []int64{64 << 20, 1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			if err = syscall.Fallocate(int(file.Fd()), 0, size, step); err == nil {
				size += step
			}
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("fill the disk: %w", err)
		}
	}
	return nil
}

// Free gives back what Fill took.
func (d *Disk) Free() error {
	if err := os.Remove(d.ballast); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("free the disk: %w", err)
	}
	return nil
}

// Resize makes it larger, or smaller but not below what is taken.
func (d *Disk) Resize(bytes int64) error {
	if err := syscall.Mount("flinkndb-test", d.dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d", bytes)); err != nil {
		return fmt.Errorf("make the disk on %s %d bytes large: %w", d.dir, bytes, err)
	}
	return nil
}

// Used is how many bytes are taken.
func (d *Disk) Used() (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(d.dir, &s); err != nil {
		return 0, fmt.Errorf("size of %s: %w", d.dir, err)
	}
	return int64(s.Blocks-s.Bfree) * s.Bsize, nil
}

// Unmount ends the file system and what is in it, even while a process still has files open there.
func (d *Disk) Unmount() error {
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	return nil
}
