package wallclock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ErrNoCompiler says that this machine has no C compiler.
var ErrNoCompiler = errors.New("there is no C compiler (cc)")

//go:embed preload/clock.c
var preloadSource []byte

// BuildPreload makes, in dir, a library for LD_PRELOAD that has a program without a clock of its own, like a JVM,
// follow the file that Variable names. Only what reads the wall clock is changed: libfaketime, which also stands
// between a program and its waits, ends a JVM's waits early and takes a processor for it.
func BuildPreload(ctx context.Context, dir string) (library string, err error) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoCompiler, err)
	}
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, preloadSource, 0o644); err != nil {
		return "", fmt.Errorf("source of the clock: %w", err)
	}
	out, err := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile the clock: %w: %s", err, out)
	}
	return library, nil
}
