package vault

import (
	"encoding/json"
	"time"

	"holdfast/supervisor/internal/keeper/wire"
)

// Handover is what a supervisor leaves whose keeper is lost. It is to exec a keeper
// in its own process, which so stays the parent of its children, and which starts a
// new supervisor that is given all of this: with a memory file that holds these
// bytes, whose number is in wire.EnvResume, and with that file and the records'
// descriptors not close-on-exec. Exits are those that were told and may be asked
// for again; starts is how many supervisors there were.
func Handover(records []Record, exits []Exit, starts int) ([]byte, error) {
	type held struct {
		PID  int    `json:"pid,omitempty"`
		Meta []byte `json:"meta,omitempty"`
		FDs  []int  `json:"fds,omitempty"`
	}
	type ended struct {
		PID    int       `json:"pid"`
		Status uint32    `json:"status"`
		At     time.Time `json:"at"`
	}
	manifest := struct { // a part of what a keeper leaves to another one
		Version int             `json:"version"`
		Records map[string]held `json:"records"`
		Exits   []ended         `json:"exits,omitempty"`
		Starts  int             `json:"starts"`
		Last    string          `json:"last"`
	}{wire.Version, map[string]held{}, nil, starts, "the keeper died"}
	for _, r := range records {
		manifest.Records[r.ID] = held{r.PID, r.Meta, r.FDs}
	}
	for _, e := range exits {
		manifest.Exits = append(manifest.Exits, ended{e.PID, e.Status, time.Now()})
	}
	return json.Marshal(manifest)
}
