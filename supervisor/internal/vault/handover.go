package vault

import (
	"encoding/json"
	"time"

	"holdfast/supervisor/internal/keeper/message"
)

// Handover returns the manifest that a supervisor leaves if its keeper has died. The supervisor
// should then exec a keeper in its own process, which so stays the parent of its children, and
// the keeper starts a new supervisor that receives the manifest's content. The manifest must be
// in a memory file, and the environment variable message.EnvResume must have its descriptor. That file
// and the descriptors of the entries must not be close-on-exec. exits are those that may still
// be needed, and starts is the number of supervisors that were started.
func Handover(entries []Entry, exits []Exit, starts int) ([]byte, error) {
	type ended struct {
		PID    int       `json:"pid"`
		Status uint32    `json:"status"`
		At     time.Time `json:"at"`
	}
	manifest := struct { // a part of the manifest that a keeper leaves to the next one
		Version int              `json:"version"`
		Entries map[string]Entry `json:"records"`
		Exits   []ended          `json:"exits,omitempty"`
		Starts  int              `json:"starts"`
		Last    string           `json:"last"`
	}{message.Version, map[string]Entry{}, nil, starts, "the keeper died"}
	for _, e := range entries {
		manifest.Entries[e.ID] = e
	}
	for _, e := range exits {
		manifest.Exits = append(manifest.Exits, ended{e.PID, e.Status, time.Now()})
	}
	return json.Marshal(manifest)
}
