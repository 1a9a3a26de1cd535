package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// journal is a CSV file that takes each measurement as soon as it is there, so that a run that was interrupted can
// go on.
type journal struct {
	file   string
	header []string
	rows   [][]string
}

// openJournal begins a file, or reads what an earlier run has left in it.
func openJournal(file string, header []string, resume bool) (*journal, error) {
	j := &journal{file: file, header: header}
	if resume {
		if err := j.read(); err != nil {
			return nil, err
		}
	}
	return j, j.write()
}

func (j *journal) read() error {
	f, err := os.Open(j.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("measurements: %w", err)
	}
	rows, err := csv.NewReader(f).ReadAll()
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("measurements: %w", err)
	}
	if len(rows) == 0 || !slices.Equal(rows[0], j.header) {
		return fmt.Errorf("measurements: %s has other columns than %q: begin without -resume", j.file, j.header)
	}
	j.rows = rows[1:]
	return nil
}

func (j *journal) write() (err error) {
	f, err := os.Create(j.file)
	if err != nil {
		return fmt.Errorf("-csv: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := csv.NewWriter(f).WriteAll(append([][]string{j.header}, j.rows...)); err != nil {
		return fmt.Errorf("-csv: %w", err)
	}
	return nil
}

// find returns the measurement that begins with these columns.
func (j *journal) find(columns ...string) (row []string, found bool) {
	for _, row := range j.rows {
		if slices.Equal(row[:len(columns)], columns) {
			return row, true
		}
	}
	return nil, false
}

func (j *journal) add(row []string) error {
	j.rows = append(j.rows, row)
	return j.write()
}

// parseAll returns what a journal holds.
func parseAll[T any](j *journal, parse func(row []string) (T, error)) ([]T, error) {
	var all []T
	for _, row := range j.rows {
		one, err := parse(row)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// numbers reads columns one after the other; the first that is no number is the error.
type numbers struct {
	row []string
	at  int
	err error
}

func (n *numbers) text() string {
	n.at++
	return n.row[n.at-1]
}

func (n *numbers) integer() int64 {
	var value int64
	n.scan(&value)
	return value
}

func (n *numbers) decimal() float64 {
	var value float64
	n.scan(&value)
	return value
}

func (n *numbers) scan(into any) {
	text := n.text()
	if _, err := fmt.Sscan(text, into); err != nil && n.err == nil {
		n.err = fmt.Errorf("column %d of %q: %w", n.at, n.row, err)
	}
}
