package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"holdfast/proxy/policy"
)

// config is the file.
type config struct {
	Users []user
	Tasks []task
	Rules map[string][]policy.Verb // what each role may do
	Audit string                   // where events go, as lines of JSON; "" is nowhere
}

// A user is known by a uid, by tokens, or by both.
type user struct {
	User      string   `json:"user"`
	UID       *int     `json:"uid"`
	Tokens    []string `json:"tokens_sha256"` // in hex, never a token itself; tokens are random and long, so no salt
	Workspace string   `json:"workspace"`
	Roles     []string `json:"roles"`
	All       bool     `json:"all"`

	sums [][]byte // Tokens as bytes
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

// parse returns the config, or all that is wrong with it.
func parse(text []byte) (*config, error) {
	// Users and tasks are decoded one by one: each tells its own mistake.
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

// strict decodes text that is one value, all of whose fields are known.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after its end")
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
