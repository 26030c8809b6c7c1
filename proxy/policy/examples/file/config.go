package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"holdfast/proxy/policy"
)

// A config is the content of the file.
type config struct {
	Users []user
	Tasks []task
	Rules map[string][]policy.Verb // verbs that each role may use
	Audit string                   // path of the audit, in lines of JSON; "" writes no audit
}

// A user is recognised by a uid, by tokens, or by both.
type user struct {
	User      string   `json:"user"`
	UID       *int     `json:"uid"`
	Tokens    []string `json:"tokens_sha256"` // SHA-256 in hex, without salt, because tokens are long and random
	Workspace string   `json:"workspace"`
	Roles     []string `json:"roles"`
	All       bool     `json:"all"`

	sums [][]byte // Tokens, decoded
}

func (u user) principal() policy.Principal {
	return policy.Principal{User: u.User, Workspace: u.Workspace, Roles: u.Roles, All: u.All}
}

type task struct {
	ID        string            `json:"id"`
	Workspace string            `json:"workspace"`
	WorkDir   string            `json:"work_dir"`
	Argv      []string          `json:"argv"`
	Env       []string          `json:"env"`
	Labels    map[string]string `json:"labels"`
	Issue     string            `json:"issue_id"`
	Prior     string            `json:"prior_agent_session_id"`
}

func (t task) task() policy.Task {
	return policy.Task{WorkDir: t.WorkDir, Argv: t.Argv, Env: t.Env, Labels: t.Labels, IssueID: t.Issue, PriorAgentSessionID: t.Prior}
}

// parse returns the config of a text, or an error that lists all mistakes.
func parse(text []byte) (*config, error) {
	// Users and tasks are decoded one by one, so that each mistake is reported.
	var raw struct {
		Users []json.RawMessage        `json:"users"`
		Tasks []json.RawMessage        `json:"tasks"`
		Rules map[string][]policy.Verb `json:"rules"`
		Audit string                   `json:"audit"`
	}
	err := strict(text, &raw)
	users, err1 := each[user]("users", raw.Users)
	tasks, err2 := each[task]("tasks", raw.Tasks)
	c := &config{users, tasks, raw.Rules, raw.Audit}
	if err := errors.Join(err, err1, err2, c.validate()); err != nil {
		return nil, err
	}
	return c, nil
}

// strict decodes text that consists of one value and has only known fields.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the text continues after the end of the value")
	}
	return nil
}

func each[T any](name string, raw []json.RawMessage) ([]T, error) {
	all, errs := make([]T, len(raw)), []error(nil)
	for i, text := range raw {
		if err := strict(text, &all[i]); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", name, i, err))
		}
	}
	return all, errors.Join(errs...)
}
