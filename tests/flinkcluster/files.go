package flinkcluster

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ReadFileSink returns the lines that a job has committed to the folder of a file sink, in any order.
func ReadFileSink(folder string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "part-*"))
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	var lines []string
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
		scanner := bufio.NewScanner(f)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			lines = append(lines, scanner.Text())
		}
		if err := errors.Join(scanner.Err(), f.Close()); err != nil {
			return nil, fmt.Errorf("results: %w", err)
		}
	}
	return lines, nil
}

// Shim is the jar of ours for a distribution in a folder that its version names, as scripts/install-flink makes it.
func Shim(dist, home string) string {
	if strings.HasPrefix(filepath.Base(filepath.Dir(home)), "1.20.") {
		return filepath.Join(dist, "flinkndb-flink-1.20.jar")
	}
	return filepath.Join(dist, "flinkndb-flink-2.jar")
}
