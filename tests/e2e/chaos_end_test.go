//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/flinkndb/flinkndb/tests/flinkcluster"
)

// awaitNothingLeft demands that the store is empty once the job has ended, without sessions, and that the server has
// closed their connections. What a killed JobManager did not come to discard, it never discards: that is released
// by hand, as an administrator would, and counted.
func (c *campaign) awaitNothingLeft() {
	c.t.Helper()
	var left error
	// A session whose end the server did not hear of, or could not write in time, ends with its lease: two minutes.
	if err := flinkcluster.Poll(c.ctx, 4*time.Minute, "an empty store", func() bool {
		left = c.whatIsLeft()
		return left == nil
	}); err != nil {
		c.t.Fatal(errors.Join(err, left))
	}
	c.awaitNoThreads()
	most := c.idle.goroutines + goroutinesOfSocket*c.sockets
	var now serverThings
	// A half-open connection ends when its keep-alive is not answered.
	err := flinkcluster.Poll(c.ctx, time.Minute, "a server without leftovers", func() bool {
		now = c.serverThings()
		return now.streams == 0 && now.sockets <= c.sockets && now.goroutines <= most
	})
	c.t.Logf("server without sessions: %d streams, %d sockets (at most %d), %d goroutines (at most %d)",
		now.streams, now.sockets, c.sockets, now.goroutines, most)
	if err != nil {
		c.t.Error(err)
	}
}

func (c *campaign) whatIsLeft() error {
	sessions, err := c.sessions()
	if err != nil {
		return err
	}
	if n := len(sessions); n > 0 {
		return fmt.Errorf("%d sessions", n)
	}
	released, err := c.releaseListed()
	if released > 0 {
		c.seen["snapshot that Flink lost track of"] += released
	}
	if err != nil {
		return err
	}
	return errors.Join(c.garbageAfterCollection(), c.server.CheckEmpty(c.ctx))
}

// serverThings are what a server may leak.
type serverThings struct {
	streams, sockets, goroutines int
}

// goroutinesOfSocket is how many serve a connection.
const goroutinesOfSocket = 4

// serverThings counts them.
func (c *campaign) serverThings() (found serverThings) {
	c.t.Helper()
	response, err := http.Get("http://" + c.serverHTTP + "/metrics")
	c.must(err)
	text, err := io.ReadAll(response.Body)
	c.must(errors.Join(err, response.Body.Close()))
	http.DefaultClient.CloseIdleConnections()
	for name, into := range map[string]*int{"flinkndb_streams": &found.streams, "go_goroutines": &found.goroutines} {
		match := regexp.MustCompile("(?m)^" + name + " (\\d+)$").FindSubmatch(text)
		if match == nil {
			c.t.Fatalf("the server has no metric %s", name)
		}
		*into, err = strconv.Atoi(string(match[1]))
		c.must(err)
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.server.Pid()))
	c.must(err)
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && strings.HasPrefix(target, "socket:") {
			found.sockets++
		}
	}
	return found
}

// sessionThread is how the system names threads of sessions in a TaskManager: the first 15 characters of
// flinkndb-session, flinkndb-flusher, flinkndb-keys.
var sessionThread = regexp.MustCompile("^flinkndb-(sessio|flushe|keys)")

// awaitNoThreads demands that no thread of a session is left in Flink's processes.
func (c *campaign) awaitNoThreads() {
	c.t.Helper()
	var left []string
	if err := flinkcluster.Poll(c.ctx, 30*time.Second, "threads that end", func() bool {
		left = nil
		for _, pid := range c.cluster.Pids() {
			names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
			c.must(err)
			for _, name := range names {
				raw, err := os.ReadFile(name)
				if thread := strings.TrimSpace(string(raw)); err == nil && sessionThread.MatchString(thread) {
					left = append(left, thread)
				}
			}
		}
		return len(left) == 0
	}); err != nil {
		c.t.Errorf("%v: %v", err, left)
	}
}
