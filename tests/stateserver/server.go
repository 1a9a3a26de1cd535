// Package stateserver runs the real server binary for tests: starts, kills and restarts it.
package stateserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Server is one `flinkndb serve`, on a Unix socket in a folder.
type Server struct {
	binary string
	dir    string
	store  string
	flags  []string
	cmd    *exec.Cmd
	ended  chan struct{}
}

// Start starts a server over a store ("" = an embedded one in the folder) and waits until it answers.
func Start(ctx context.Context, binary, dir, store string, flags ...string) (*Server, error) {
	if store == "" {
		store = "pebble:" + filepath.Join(dir, "store")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the server: %w", err)
	}
	s := &Server{binary: binary, dir: dir, store: store, flags: flags}
	return s, s.Restart(ctx)
}

// Address is the value for state.backend.ndb.address.
func (s *Server) Address() string { return "unix://" + filepath.Join(s.dir, "s.sock") }

// Pid is the server's process id.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Running says whether the server has not ended, by whatever cause.
func (s *Server) Running() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// LogFile is where the server writes to.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "server.log") }

// StoreDir is where the embedded store lives.
func (s *Server) StoreDir() string { return strings.TrimPrefix(s.store, "pebble:") }

// Restart starts the server again, on the same socket and store.
func (s *Server) Restart(ctx context.Context) error {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("log of the server: %w", err)
	}
	args := append([]string{"serve", "--listen", s.Address(), "--store", s.store, "--http", ""}, s.flags...)
	cmd := exec.Command(s.binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start the server: %w", err), log.Close())
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		_ = log.Close()
		close(ended)
	}(s.ended)
	return s.awaitReady(ctx)
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		if _, err := s.Command(ctx, "status"); err == nil {
			return nil
		}
		select {
		case <-s.ended:
			raw, _ := os.ReadFile(s.LogFile())
			return fmt.Errorf("the server ended:\n%s", raw)
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Command runs an administrator's command against the server and returns its output.
func (s *Server) Command(ctx context.Context, command string, args ...string) ([]byte, error) {
	all := append([]string{command, "--address", s.Address()}, args...)
	out, err := exec.CommandContext(ctx, s.binary, all...).Output()
	if err != nil {
		return nil, fmt.Errorf("flinkndb %s: %w", command, err)
	}
	return out, nil
}

// Ask runs an administrator's command and decodes the JSON that it prints.
func (s *Server) Ask(ctx context.Context, into any, command string, args ...string) error {
	raw, err := s.Command(ctx, command, append(args, "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("answer of flinkndb %s: %w", command, err)
	}
	return nil
}

// CountRows asks for all rows and versions in the store.
func (s *Server) CountRows(ctx context.Context) (rows, versions int, err error) {
	var answer struct {
		RowSpaces []struct {
			Rows     int `json:"rows,string"`
			Versions int `json:"versions,string"`
		} `json:"row_spaces"`
	}
	if err := s.Ask(ctx, &answer, "spaces", "--count"); err != nil {
		return 0, 0, err
	}
	for _, space := range answer.RowSpaces {
		rows, versions = rows+space.Rows, versions+space.Versions
	}
	return rows, versions, nil
}

// CheckEmpty has the server collect its garbage; rows that are left then are the error.
func (s *Server) CheckEmpty(ctx context.Context) error {
	if _, err := s.Command(ctx, "gc"); err != nil {
		return err
	}
	rows, versions, err := s.CountRows(ctx)
	if err == nil && rows > 0 {
		err = fmt.Errorf("%d rows with %d versions are left", rows, versions)
	}
	return err
}

// Kill ends the server at once (SIGKILL).
func (s *Server) Kill() error { return s.signal(syscall.SIGKILL) }

// Freeze stops the process without ending it (SIGSTOP): it answers nothing until Thaw.
func (s *Server) Freeze() error { return s.send(syscall.SIGSTOP) }

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() error { return s.send(syscall.SIGCONT) }

// Stop ends the server in its own way (SIGTERM) and waits for it.
func (s *Server) Stop() error { return s.signal(syscall.SIGTERM) }

func (s *Server) signal(sig syscall.Signal) error {
	if !s.Running() {
		return nil
	}
	if err := s.send(sig); err != nil {
		return err
	}
	<-s.ended
	return nil
}

func (s *Server) send(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal the server: %w", err)
	}
	return nil
}
