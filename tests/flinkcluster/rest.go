package flinkcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"
)

// ErrNotFound is the error of requests for what Flink does not know.
var ErrNotFound = errors.New("not found")

// Client speaks to Flink's REST interface.
type Client struct {
	base string
	http *http.Client
}

// NewClient returns a client for a base address.
func NewClient(base string) *Client {
	return &Client{base: base, http: &http.Client{Timeout: 60 * time.Second}}
}

// URL is the address of Flink's web interface.
func (c *Client) URL() string { return c.base }

func (c *Client) call(ctx context.Context, method, at string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, at, err)
		}
		body = bytes.NewReader(raw)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+at, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, at, err)
	}
	request.Header.Set("Content-Type", "application/json")
	return c.do(request, out)
}

func (c *Client) do(request *http.Request, out any) (err error) {
	what := request.Method + " " + request.URL.Path
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if response.StatusCode == http.StatusNotFound {
		return fmt.Errorf("%s: %w: %.2000s", what, ErrNotFound, raw)
	}
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %s: %.2000s", what, response.Status, raw)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// AwaitREST waits until the JobManager answers.
func (c *Client) AwaitREST(ctx context.Context, p *Process) error {
	return poll(ctx, 3*time.Minute, "JobManager", func(ctx context.Context) (bool, error) {
		if !p.Running() {
			return true, fmt.Errorf("the JobManager ended:\n%s", p.Tail())
		}
		err := c.call(ctx, http.MethodGet, "/overview", nil, nil)
		return err == nil, err
	})
}

// AwaitTaskManagers waits until so many TaskManagers are registered.
func (c *Client) AwaitTaskManagers(ctx context.Context, n int) error {
	return poll(ctx, 3*time.Minute, fmt.Sprintf("%d TaskManagers", n), func(ctx context.Context) (bool, error) {
		var overview struct {
			TaskManagers int `json:"taskmanagers"`
		}
		err := c.call(ctx, http.MethodGet, "/overview", nil, &overview)
		return err == nil && overview.TaskManagers == n, err
	})
}

// Upload brings a job's jar to the cluster and returns its id.
func (c *Client) Upload(ctx context.Context, jar string) (string, error) {
	raw, err := os.ReadFile(jar)
	if err != nil {
		return "", fmt.Errorf("jar: %w", err)
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("jarfile", filepath.Base(jar))
	if err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	if _, err := part.Write(raw); err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	if err := form.Close(); err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/jars/upload", &body)
	if err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	var answer struct {
		Filename string `json:"filename"`
	}
	if err := c.do(request, &answer); err != nil {
		return "", err
	}
	return path.Base(answer.Filename), nil
}

// Run describes how to run an uploaded jar.
type Run struct {
	EntryClass    string            `json:"entryClass,omitempty"`
	Args          []string          `json:"programArgsList,omitempty"`
	Parallelism   int               `json:"parallelism,omitempty"`
	SavepointPath string            `json:"savepointPath,omitempty"`
	ClaimMode     string            `json:"claimMode,omitempty"` // CLAIM or NO_CLAIM
	Config        map[string]string `json:"flinkConfiguration,omitempty"`
}

// Submit runs an uploaded jar and returns the job's id.
func (c *Client) Submit(ctx context.Context, jar string, run Run) (string, error) {
	var answer struct {
		JobID string `json:"jobid"`
	}
	err := c.call(ctx, http.MethodPost, "/jars/"+jar+"/run", run, &answer)
	return answer.JobID, err
}

// Job is the status of a job.
type Job struct {
	State    string `json:"state"`
	Name     string `json:"name"`
	Vertices []struct {
		ID          string         `json:"id"`
		Name        string         `json:"name"`
		Parallelism int            `json:"parallelism"`
		Tasks       map[string]int `json:"tasks"`
		Metrics     struct {
			ReadRecords  int64 `json:"read-records"`
			WriteRecords int64 `json:"write-records"`
		} `json:"metrics"`
	} `json:"vertices"`
	Timestamps map[string]int64 `json:"timestamps"`
}

// Running says whether all tasks run.
func (j *Job) Running() bool {
	for _, v := range j.Vertices {
		if v.Tasks["RUNNING"]+v.Tasks["FINISHED"] != v.Parallelism {
			return false
		}
	}
	return j.State == "RUNNING"
}

// Job returns the status of a job.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) {
	job := &Job{}
	return job, c.call(ctx, http.MethodGet, "/jobs/"+id, nil, job)
}

// Exceptions returns why the job failed last.
func (c *Client) Exceptions(ctx context.Context, id string) string {
	var answer struct {
		History struct {
			Entries []struct {
				Stacktrace string `json:"stacktrace"`
			} `json:"entries"`
		} `json:"exceptionHistory"`
	}
	if err := c.call(ctx, http.MethodGet, "/jobs/"+id+"/exceptions", nil, &answer); err != nil {
		return err.Error()
	}
	if len(answer.History.Entries) == 0 {
		return "none"
	}
	return answer.History.Entries[0].Stacktrace
}

// AwaitJob waits until a job satisfies a condition.
func (c *Client) AwaitJob(ctx context.Context, id string, timeout time.Duration, what string, ok func(*Job) bool) error {
	return poll(ctx, timeout, "job "+what, func(ctx context.Context) (bool, error) {
		job, err := c.Job(ctx, id)
		if err != nil {
			return false, err
		}
		if ok(job) {
			return true, nil
		}
		if job.State == "FAILED" {
			return true, fmt.Errorf("job failed: %s", c.Exceptions(ctx, id))
		}
		return false, fmt.Errorf("state %s", job.State)
	})
}

// Checkpoints are the checkpoint statistics of a job.
type Checkpoints struct {
	Counts struct {
		Completed int `json:"completed"`
		Failed    int `json:"failed"`
		Restored  int `json:"restored"`
	} `json:"counts"`
	Latest struct {
		Completed *Checkpoint `json:"completed"`
		Restored  *struct {
			ID int64 `json:"id"`
		} `json:"restored"`
	} `json:"latest"`
	History []Checkpoint `json:"history"`
}

// Checkpoint is one checkpoint.
type Checkpoint struct {
	ID           int64  `json:"id"`
	Status       string `json:"status"`
	ExternalPath string `json:"external_path"`
	Duration     int64  `json:"end_to_end_duration"` // milliseconds
	StateSize    int64  `json:"state_size"`
	// CheckpointedSize is what the checkpoint wrote, without what it shares with earlier ones.
	CheckpointedSize int64 `json:"checkpointed_size"`
}

// Checkpoints returns the checkpoint statistics of a job.
func (c *Client) Checkpoints(ctx context.Context, id string) (*Checkpoints, error) {
	stats := &Checkpoints{}
	return stats, c.call(ctx, http.MethodGet, "/jobs/"+id+"/checkpoints", nil, stats)
}

// CheckpointParts is where the time of a completed checkpoint went, in milliseconds: each is the longest of all subtasks.
type CheckpointParts struct {
	// Delay is how long the barrier travelled: it waits behind the records that a busy task has not handled yet.
	Delay int64
	// Sync is how long a task stood still.
	Sync int64
	// Async is how long state was on its way while the task went on.
	Async int64
}

// CheckpointParts tells the parts of a checkpoint that Flink still has in its history.
func (c *Client) CheckpointParts(ctx context.Context, id string, checkpoint int64) (longest CheckpointParts, err error) {
	job, err := c.Job(ctx, id)
	if err != nil {
		return longest, err
	}
	type most struct {
		Max int64 `json:"max"`
	}
	for _, vertex := range job.Vertices {
		var answer struct {
			Summary struct {
				Delay    most `json:"start_delay"`
				Duration struct {
					Sync  most `json:"sync"`
					Async most `json:"async"`
				} `json:"checkpoint_duration"`
			} `json:"summary"`
		}
		at := fmt.Sprintf("/jobs/%s/checkpoints/details/%d/subtasks/%s", id, checkpoint, vertex.ID)
		if err := c.call(ctx, http.MethodGet, at, nil, &answer); err != nil {
			return longest, err
		}
		of := answer.Summary
		longest.Delay = max(longest.Delay, of.Delay.Max)
		longest.Sync, longest.Async = max(longest.Sync, of.Duration.Sync.Max), max(longest.Async, of.Duration.Async.Max)
	}
	return longest, nil
}

// Restarts returns how often a job has been restarted.
func (c *Client) Restarts(ctx context.Context, id string) (int, error) {
	var metrics []struct {
		Value string `json:"value"`
	}
	if err := c.call(ctx, http.MethodGet, "/jobs/"+id+"/metrics?get=numRestarts", nil, &metrics); err != nil {
		return 0, err
	}
	if len(metrics) != 1 {
		return 0, fmt.Errorf("job %s has no metric numRestarts", id)
	}
	return strconv.Atoi(metrics[0].Value)
}

// Accumulators returns the values of the accumulators that a job's functions have made.
func (c *Client) Accumulators(ctx context.Context, id string) (map[string]string, error) {
	var answer struct {
		Accumulators []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"user-task-accumulators"`
	}
	if err := c.call(ctx, http.MethodGet, "/jobs/"+id+"/accumulators", nil, &answer); err != nil {
		return nil, err
	}
	values := make(map[string]string)
	for _, a := range answer.Accumulators {
		values[a.Name] = a.Value
	}
	return values, nil
}

// AwaitCheckpoints waits until so many more checkpoints have completed.
func (c *Client) AwaitCheckpoints(ctx context.Context, id string, more int) error {
	first := -1
	return poll(ctx, 2*time.Minute, fmt.Sprintf("%d more checkpoints", more), func(ctx context.Context) (bool, error) {
		stats, err := c.Checkpoints(ctx, id)
		if err != nil {
			return false, err
		}
		if first < 0 {
			first = stats.Counts.Completed
		}
		return stats.Counts.Completed >= first+more, nil
	})
}

// Cancel cancels a job and waits until it is gone.
func (c *Client) Cancel(ctx context.Context, id string) error {
	if err := c.call(ctx, http.MethodPatch, "/jobs/"+id+"?mode=cancel", nil, nil); err != nil {
		return err
	}
	return c.AwaitJob(ctx, id, time.Minute, "cancelled", func(j *Job) bool { return j.State == "CANCELED" })
}

// DisposeSavepoint has the JobManager discard a savepoint, as `flink savepoint --dispose` does.
func (c *Client) DisposeSavepoint(ctx context.Context, path string) error {
	_, err := c.operate(ctx, "disposal of "+path, "/savepoint-disposal", "/savepoint-disposal/", map[string]string{"savepoint-path": path})
	return err
}

// Savepoint takes a savepoint ("CANONICAL" or "NATIVE") and returns its path; with stop the job ends.
func (c *Client) Savepoint(ctx context.Context, id, format string, stop bool) (string, error) {
	at, body := "/jobs/"+id+"/savepoints", map[string]any{"formatType": format, "cancel-job": false}
	if stop {
		at, body = "/jobs/"+id+"/stop", map[string]any{"formatType": format, "drain": false}
	}
	return c.operate(ctx, "savepoint", at, "/jobs/"+id+"/savepoints/", body)
}

// operate triggers something that Flink does in the background, and waits until it has. It returns the location
// of what was made, if anything.
func (c *Client) operate(ctx context.Context, what, at, statusAt string, body any) (location string, err error) {
	var trigger struct {
		ID string `json:"request-id"`
	}
	if err := c.call(ctx, http.MethodPost, at, body, &trigger); err != nil {
		return "", err
	}
	err = poll(ctx, 2*time.Minute, what, func(ctx context.Context) (bool, error) {
		var status struct {
			Status struct {
				ID string `json:"id"`
			} `json:"status"`
			Operation struct {
				Location string          `json:"location"`
				Failure  json.RawMessage `json:"failure-cause"`
			} `json:"operation"`
		}
		if err := c.call(ctx, http.MethodGet, statusAt+trigger.ID, nil, &status); err != nil {
			return false, err
		}
		if status.Status.ID != "COMPLETED" {
			return false, nil
		}
		if len(status.Operation.Failure) > 0 {
			return true, fmt.Errorf("%s failed: %.3000s", what, status.Operation.Failure)
		}
		location = status.Operation.Location
		return true, nil
	})
	return location, err
}
