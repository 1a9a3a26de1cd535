package main

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"
)

// event is one line of the job's input.
type event struct {
	flight   bool
	ts       int64 // scheduled departure or beginning of the hour, milliseconds since 1970
	arrival  int64 // when the event happens: the real departure
	origin   string
	carrier  string
	tail     string
	dest     string
	delay    int // minutes; 0 for flights that were cancelled
	distance int
	wind     string
}

func (e event) line() string {
	if e.flight {
		return fmt.Sprintf("F,%d,%s,%s,%s,%s,%d,%d", e.ts, e.origin, e.carrier, e.tail, e.dest, e.delay, e.distance)
	}
	return fmt.Sprintf("X,%d,%s,%s", e.ts, e.origin, e.wind)
}

// readEvents reads flights and weather and puts them into the order in which they happened.
func readEvents(dir string) ([]event, error) {
	var events []event
	err := readCSV(filepath.Join(dir, "flights.csv"), func(field func(string) string) error {
		e, err := parseFlight(field)
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = readCSV(filepath.Join(dir, "weather.csv"), func(field func(string) string) error {
		e := event{origin: field("origin"), wind: field("wind_speed")}
		var err error
		e.ts, err = timestamp(field, field("hour"), "0")
		e.arrival = e.ts
		events = append(events, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	sort.SliceStable(events, func(i, j int) bool { return events[i].arrival < events[j].arrival })
	return events, nil
}

func parseFlight(field func(string) string) (event, error) {
	e := event{flight: true, origin: field("origin"), carrier: field("carrier"), tail: field("tailnum"), dest: field("dest")}
	if e.tail == "NA" {
		e.tail = ""
	}
	var err error
	if e.ts, err = timestamp(field, field("hour"), field("minute")); err != nil {
		return e, err
	}
	if delay := field("dep_delay"); delay != "" && delay != "NA" {
		minutes, err := strconv.ParseFloat(delay, 64)
		if err != nil {
			return e, fmt.Errorf("dep_delay: %w", err)
		}
		e.delay = int(minutes)
	}
	e.arrival = e.ts + int64(e.delay)*time.Minute.Milliseconds()
	distance, err := strconv.ParseFloat(field("distance"), 64)
	e.distance = int(distance)
	return e, err
}

func timestamp(field func(string) string, hour, minute string) (int64, error) {
	var numbers [5]int
	for i, text := range []string{field("year"), field("month"), field("day"), hour, minute} {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("date and time: %w", err)
		}
		numbers[i] = int(n)
	}
	return time.Date(numbers[0], time.Month(numbers[1]), numbers[2], numbers[3], numbers[4], 0, 0, time.UTC).UnixMilli(), nil
}

// readCSV calls fn for each row, with a way to its fields by name.
func readCSV(file string, fn func(field func(string) string) error) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("data of the demo: %w (run scripts/install-flights)", err)
	}
	defer func() { _ = f.Close() }() // only read from
	reader := csv.NewReader(bufio.NewReader(f))
	header, err := reader.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	columns := map[string]int{}
	for i, name := range header {
		columns[name] = i
	}
	for {
		row, err := reader.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := fn(func(name string) string { return row[columns[name]] }); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
}

// writeInput writes the job's input.
func writeInput(file string, events []event) error {
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("input of the job: %w", err)
	}
	w := bufio.NewWriter(f)
	for _, e := range events {
		if _, err := w.WriteString(e.line() + "\n"); err != nil {
			return fmt.Errorf("input of the job: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("input of the job: %w", err)
	}
	return f.Close()
}
