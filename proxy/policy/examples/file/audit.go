package main

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"holdfast/proxy/policy"
)

// An entry is one line of the audit.
type entry struct {
	At        time.Time         `json:"at"`
	Kind      string            `json:"kind"`
	User      string            `json:"user,omitempty"`
	Workspace string            `json:"workspace,omitempty"`
	SessionID string            `json:"session_id,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Verb      policy.Verb       `json:"verb,omitempty"`
	Code      string            `json:"code,omitempty"`
	ExitCode  *int              `json:"exit_code,omitempty"` // of event exited
}

// audit appends an event to the file at path. It opens the file for each event, so that the file
// can be rotated at any time. It writes each line with one call, so that lines do not mix.
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
