package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"holdfast/proxy/policy"
)

// An entry is a line of the audit.
type entry struct {
	At        time.Time         `json:"at"`
	Kind      string            `json:"kind"`
	User      string            `json:"user,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	SessionID string            `json:"session_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Verb      policy.Verb       `json:"verb,omitempty"`
	Code      string            `json:"code,omitempty"`
	ExitCode  *int              `json:"exit_code,omitempty"` // of exited
}

// audit appends an event. It opens the file anew, so that whoever rotates it
// need not tell, and writes the line at once, so that none is within another.
func audit(path string, e policy.Event) error {
	line := entry{
		At: e.At.UTC(), Kind: e.Kind, User: e.Principal.User, Workspace: e.Principal.Workspace,
		SessionID: e.SessionID, Labels: e.Labels, Verb: e.Verb, Code: e.Code,
	}
	if e.Kind == policy.EventExited {
		line.ExitCode = &e.ExitCode
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}
