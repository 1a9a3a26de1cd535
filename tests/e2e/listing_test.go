//go:build e2e

package e2e

// sessionInfo is what `flinkndb sessions` says of a session.
type sessionInfo struct {
	JobID     string   `json:"job_id"`
	RowSpaces []string `json:"row_spaces"`
}

func (e *environment) sessions() ([]sessionInfo, error) {
	var list struct {
		Sessions []sessionInfo `json:"sessions"`
	}
	err := e.server.Ask(e.ctx, &list, "sessions")
	return list.Sessions, err
}

// releaseListed releases the snapshots that `flinkndb snapshots` lists with some flags, as an administrator would when
// Flink has lost them, and says how many.
func (e *environment) releaseListed(flags ...string) (int, error) {
	var list struct {
		Snapshots []struct {
			ID string `json:"snapshot_id"`
		} `json:"snapshots"`
	}
	if err := e.server.Ask(e.ctx, &list, "snapshots", flags...); err != nil {
		return 0, err
	}
	for n, s := range list.Snapshots {
		if _, err := e.server.Command(e.ctx, "snapshots", "--release", s.ID); err != nil {
			return n, err
		}
	}
	return len(list.Snapshots), nil
}
