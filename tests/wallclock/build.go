// Package wallclock builds Go programs whose wall clock tests can set, as an operator or a time daemon would, without
// touching the machine's. The program is built from its own unchanged sources, with a standard library in which
// time.Now adds what a file says. Only the wall clock jumps, as on a real machine: timers, deadlines and time.Since
// go by the monotonic clock.
package wallclock

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Variable names, in the environment of a program from Build, the file that its clock follows.
const Variable = "FLINKNDB_TEST_CLOCK"

// What Build changes in the standard library's time.go, and what it adds.
const (
	original = "sec, nsec, mono := runtimeNow()"
	changed  = original + "\n\tsec += testClockShift()"
	added    = `package time

import (
	"sync"
	"syscall"
	"unsafe"
)

var testClock = sync.OnceValue(func() *int64 {
	name, ok := syscall.Getenv("` + Variable + `")
	if !ok {
		return new(int64)
	}
	file, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	memory, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(name + ": " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&memory[0]))
})

func testClockShift() int64 { return *testClock() }
`
)

// Build makes a program from a package of this module. dir takes the files that this needs.
func Build(ctx context.Context, pkg, program, dir string) error {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("where Go is: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return fmt.Errorf("the standard library: %w", err)
	}
	if n := strings.Count(string(source), original); n != 1 {
		return fmt.Errorf("%s: found %q %d times, expected once: this Go is another than the test knows", library, original, n)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for name, text := range map[string]string{
		"time.go":       strings.Replace(string(source), original, changed, 1),
		"test_clock.go": added,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return fmt.Errorf("changed library: %w", err)
		}
		overlay["Replace"][filepath.Join(library, name)] = file
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, raw, 0o644); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", list, "-o", program, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// Clock is the file that one or more programs follow.
type Clock struct {
	file  string
	shift time.Duration
}

// New makes a clock that is right.
func New(file string) (*Clock, error) {
	c := &Clock{file: file}
	return c, c.Shift(0)
}

// Environment is what a program from Build needs in its environment to follow the clock.
func (c *Clock) Environment() string { return Variable + "=" + c.file }

// Shifted is how far the clock is ahead of the machine's.
func (c *Clock) Shifted() time.Duration { return c.shift }

// Shift sets the clock so far ahead of the machine's, or behind it; programs that run see it at once. Full seconds.
func (c *Clock) Shift(by time.Duration) (err error) {
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o644) // in place: it is mapped
	if err != nil {
		return fmt.Errorf("shift the clock: %w", err)
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	var raw [8]byte
	binary.NativeEndian.PutUint64(raw[:], uint64(int64(by/time.Second)))
	if _, err := file.WriteAt(raw[:], 0); err != nil {
		return fmt.Errorf("shift the clock: %w", err)
	}
	c.shift = by
	return nil
}
