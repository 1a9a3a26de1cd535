package main

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"time"
)

// What the job computes, once more and without Flink, from the definition of each result.

const (
	hourMs       = int64(time.Hour / time.Millisecond)
	dayMs        = 24 * hourMs
	outOfOrderMs = hourMs / 2
	windowMs     = 6 * hourMs
	slideMs      = 2 * hourMs
)

// expectedLines returns the lines that the job must write, in any order.
func expectedLines(events []event) []string {
	lines := windowLines(events)
	lines = append(lines, aircraftLines(events)...)
	return append(lines, weatherLines(events)...)
}

type windowKey struct {
	group string
	end   int64
}

type delays struct{ count, sum, most int }

// windowLines are the sliding windows and the flights that were too late for all of theirs.
func windowLines(events []event) []string {
	windows := map[windowKey]*delays{}
	var lines []string
	watermark := int64(math.MinInt64)
	latest := int64(math.MinInt64)
	for _, e := range events {
		if e.flight && !addToWindows(windows, e, watermark) {
			lines = append(lines, fmt.Sprintf("L,%s,%s,%s,%d", e.carrier, e.origin, e.tail, e.ts))
		}
		if e.ts > latest {
			latest = e.ts
			watermark = latest - outOfOrderMs - 1
		}
	}
	for key, d := range windows {
		lines = append(lines, fmt.Sprintf("W,%s,%d,%d,%d,%d", key.group, key.end, d.count, d.sum, d.most))
	}
	return lines
}

// addToWindows adds a flight to the windows that have not closed; false if all have.
func addToWindows(windows map[windowKey]*delays, e event, watermark int64) bool {
	taken := false
	for start := e.ts - e.ts%slideMs; start > e.ts-windowMs; start -= slideMs {
		end := start + windowMs
		if end-1 <= watermark {
			continue
		}
		taken = true
		key := windowKey{e.carrier + "," + e.origin, end}
		d := windows[key]
		if d == nil {
			d = &delays{most: math.MinInt32}
			windows[key] = d
		}
		d.count++
		d.sum += e.delay
		d.most = max(d.most, e.delay)
	}
	return taken
}

type aircraft struct {
	flights, miles, worst int
	destinations          map[string]int
	days                  map[int64][]string
}

// aircraftLines are the rotations of each aircraft, by day and over the year.
func aircraftLines(events []event) []string {
	fleet := map[string]*aircraft{}
	for _, e := range events {
		if !e.flight || e.tail == "" {
			continue
		}
		a := fleet[e.tail]
		if a == nil {
			a = &aircraft{worst: math.MinInt32, destinations: map[string]int{}, days: map[int64][]string{}}
			fleet[e.tail] = a
		}
		day := e.ts / dayMs
		a.flights++
		a.miles += e.distance
		a.worst = max(a.worst, e.delay)
		a.destinations[e.dest]++
		a.days[day] = append(a.days[day], fmt.Sprintf("%d:%d:%s-%s", day, e.ts, e.origin, e.dest))
	}
	var lines []string
	for tail, a := range fleet {
		most := 0
		for _, times := range a.destinations {
			most = max(most, times)
		}
		lines = append(lines, fmt.Sprintf("A,%s,%d,%d,%d,%d,%d", tail, a.flights, len(a.destinations), most, a.miles, a.worst))
		for day, legs := range a.days {
			sort.Strings(legs)
			lines = append(lines, fmt.Sprintf("R,%s,%d,%s", tail, day, strings.Join(legs, " ")))
		}
	}
	return lines
}

type airportHour struct {
	origin string
	hour   int64
}

// weatherLines join the flights of each hour with the wind.
func weatherLines(events []event) []string {
	wind := map[airportHour]string{}
	flights := map[airportHour]*delays{}
	for _, e := range events {
		at := airportHour{e.origin, e.ts / hourMs * hourMs}
		if !e.flight {
			wind[at] = e.wind
			continue
		}
		if flights[at] == nil {
			flights[at] = &delays{}
		}
		flights[at].count++
		flights[at].sum += e.delay
	}
	var lines []string
	for at, d := range flights {
		speed, known := wind[at]
		if !known {
			speed = "unknown"
		}
		lines = append(lines, fmt.Sprintf("J,%s,%d,%d,%d,%s", at.origin, at.hour, d.count, d.sum, speed))
	}
	return lines
}
