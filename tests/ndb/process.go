package ndb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a program started in a session of its own, so that it outlives its starter and can be
// killed together with its children (a data node is two processes: a worker and its angel).
type process struct {
	Name string   // unique within the cluster: "mgmd", "ndbd2", "mysqld1"
	Path string   // the program
	Args []string // without the program's name
	Pid  int      // 0 = never started
}

// start runs the program; its output is appended to NAME.log in dir.
func (p *process) start(dir string) error {
	logFile, err := os.OpenFile(filepath.Join(dir, p.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logFile.Close()
	cmd := exec.Command(p.Path, p.Args...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.Name, err)
	}
	p.Pid = cmd.Process.Pid
	go func() { _ = cmd.Wait() }() // reaps it; the exit code is of no interest
	return nil
}

// running says whether the process, or a child that shares its session, is still there. It looks at
// the command line so that a reused process id is not mistaken for ours.
func (p *process) running() bool {
	if p.Pid == 0 {
		return false
	}
	return len(p.members()) > 0
}

// members lists the live processes of the session that start opened.
func (p *process) members() []int {
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, session, ok := readStat(e)
		if !ok || session != p.Pid {
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(filepath.Dir(e), "cmdline"))
		// A program that is just being started has no command line for a moment.
		if err == nil && (len(cmdline) == 0 || strings.HasPrefix(string(cmdline), p.Path+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// readStat returns process and session id from a /proc/PID/stat file; false for zombies and
// processes that have gone.
func readStat(path string) (pid, session int, ok bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, false
	}
	// The name in parentheses may hold anything; the fields follow the last parenthesis.
	s := string(b)
	end := strings.LastIndexByte(s, ')')
	if end < 0 {
		return 0, 0, false
	}
	var state string
	var parent, group int
	if _, err := fmt.Sscan(s[end+1:], &state, &parent, &group, &session); err != nil {
		return 0, 0, false
	}
	if _, err := fmt.Sscan(s, &pid); err != nil {
		return 0, 0, false
	}
	return pid, session, state != "Z" && state != "X"
}

// signal sends a signal to all members. Sending to those that have gone is not an error.
func (p *process) signal(sig syscall.Signal) error {
	for _, pid := range p.members() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signalling %s (pid %d): %w", p.Name, pid, err)
		}
	}
	return nil
}

// kill ends all members at once, as a crash of their machine would, and waits until they are gone.
func (p *process) kill() error {
	if p.Pid == 0 {
		return nil
	}
	deadline := time.Now().Add(10 * time.Second)
	for p.running() {
		if err := p.signal(syscall.SIGKILL); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s (pid %d) does not die", p.Name, p.Pid)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// terminate asks the process to end and kills it if it has not within the limit.
func (p *process) terminate(limit time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	deadline := time.Now().Add(limit)
	for p.running() {
		if time.Now().After(deadline) {
			return p.kill()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// await calls ready until it returns nil, with the last error if ctx or the process ends first.
func (p *process) await(ctx context.Context, dir string, ready func(context.Context) error) error {
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		if !p.running() {
			return fmt.Errorf("%s ended while starting: %w\n%s", p.Name, last, tail(filepath.Join(dir, p.Name+".log")))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%v)", p.Name, ctx.Err(), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tail returns the last lines of a log file for an error message.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	const keep = 2000
	if len(b) > keep {
		b = b[len(b)-keep:]
	}
	return fmt.Sprintf("--- end of %s:\n%s", path, b)
}
