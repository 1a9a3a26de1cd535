package wallclock

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestShift builds a small program and moves its clock there and back while it runs.
func TestShift(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "now")
	if err := Build(t.Context(), "./now", program, dir); err != nil {
		t.Fatal(err)
	}
	follow(t, dir, time.Minute, program)
}

// TestShiftOfJVM does the same with a JVM, whose waits must not end early either.
func TestShiftOfJVM(t *testing.T) {
	dir := t.TempDir()
	library, err := BuildPreload(t.Context(), dir)
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "javac", "-d", dir, "preload/Now.java").CombinedOutput(); err != nil {
		t.Fatalf("javac: %v: %s", err, out)
	}
	t.Setenv("LD_PRELOAD", library)
	follow(t, dir, 10*time.Millisecond, "java", "-Xmx64m", "-cp", dir, "Now")
}

// follow moves a clock there and back under a program that prints, for each line of input, its wall clock in seconds
// and the nanoseconds by which its monotonic clock is wrong, which must be within a limit.
func follow(t *testing.T, dir string, limit time.Duration, program string, args ...string) {
	t.Helper()
	clock, err := New(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), clock.Environment())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for _, shift := range []time.Duration{0, 3 * time.Hour, -2 * time.Hour, 0} {
		if err := clock.Shift(shift); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		var wall, elapsed int64
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		if _, err := fmt.Sscan(lines.Text(), &wall, &elapsed); err != nil {
			t.Fatal(err)
		}
		ahead := time.Until(time.Unix(wall, 0))
		if difference := (ahead - shift).Abs(); difference > time.Minute {
			t.Errorf("the clock is %v ahead, it was set to %v", ahead, shift)
		}
		if time.Duration(elapsed).Abs() > limit {
			t.Errorf("the monotonic clock is wrong by %v", time.Duration(elapsed))
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}
