package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// cpuTimes are seconds of processor time, by what used them.
type cpuTimes struct{ flink, server, database float64 }

func (t cpuTimes) sum() float64 { return t.flink + t.server + t.database }

func (t cpuTimes) minus(o cpuTimes) cpuTimes {
	return cpuTimes{t.flink - o.flink, t.server - o.server, t.database - o.database}
}

func (t cpuTimes) String() string {
	return fmt.Sprintf("Flink %.0f, server %.0f, database %.0f", t.flink, t.server, t.database)
}

// cpuTimes is what the session's processes have used so far.
func (s *session) cpuTimes() (t cpuTimes, err error) {
	if t.flink, err = cpuSeconds(s.cluster.Pids()); err != nil {
		return t, err
	}
	if t.server, err = cpuSeconds(s.serverPids()); err != nil {
		return t, err
	}
	t.database, err = cpuSeconds(s.databasePids())
	return t, err
}

func (s *session) serverPids() []int {
	if s.server == nil {
		return nil
	}
	return []int{s.server.Pid()}
}

func (s *session) databasePids() []int {
	if s.database == nil {
		return nil
	}
	return s.database.Pids()
}

// pids are the processes whose work counts: Flink's, the state server's and the database's.
func (s *session) pids() []int {
	return slices.Concat(s.cluster.Pids(), s.serverPids(), s.databasePids())
}

// cpuSeconds is what processes have used so far.
func cpuSeconds(pids []int) (total float64, err error) {
	for _, pid := range pids {
		// After the name in parentheses, utime, stime, cutime and cstime are the fields 14 to 17.
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		for _, field := range fields[11:15] {
			ticks, err := strconv.ParseFloat(string(field), 64)
			if err != nil {
				return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
			}
			total += ticks
		}
	}
	const ticksASecond = 100 // USER_HZ, on every Linux that Go runs on
	return total / ticksASecond, nil
}

// peakMemory sums the largest resident sizes of all processes.
func (s *session) peakMemory() (total int64, err error) {
	for _, pid := range s.pids() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		_, rest, found := bytes.Cut(raw, []byte("VmHWM:"))
		fields := bytes.Fields(rest)
		if !found || len(fields) == 0 {
			return 0, fmt.Errorf("memory of process %d: no VmHWM in its status", pid)
		}
		kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		total += kilobytes << 10
	}
	return total, nil
}
