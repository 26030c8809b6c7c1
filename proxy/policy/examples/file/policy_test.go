package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"holdfast/proxy/policy"
	"holdfast/proxy/policy/policytest"
)

const token = "a token"

func text(user, audit string) string {
	return fmt.Sprintf(`{"users": [{"user": %q, "uid": 7, "tokens_sha256": ["%x"], "workspace": "w", "roles": ["r"]}],
		"tasks": [{"id": "t", "workspace": "w", "work_dir": "/"}, {"id": "u", "work_dir": "/"}], "rules": {"r": ["read"]}, "audit": %q}`,
		user, sha256.Sum256([]byte(token)), audit)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, path string) (*filePolicy, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	log := hclog.New(&hclog.LoggerOptions{Output: &said})
	s, err := open(path, log)
	if err != nil {
		t.Fatal(err)
	}
	return &filePolicy{s, log}, &said
}

// The suite of policytest, in a process with the race detector.
func TestPromises(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.json")
	write(t, path, text("ann", filepath.Join(dir, "audit")))
	p, _ := opened(t, path)
	ann := policy.Principal{User: "ann", Workspace: "w", Roles: []string{"r"}}
	ask := func(id string) policy.TaskRequest {
		return policy.TaskRequest{Principal: ann, TaskID: id, WorkspaceID: "w"}
	}
	policytest.Run(t, p, policytest.Subject{
		Tokens: map[string]policy.Principal{token: ann}, UIDs: map[int]policy.Principal{7: ann}, Strangers: []int{0, 8},
		Tasks:   []policytest.Known{{Request: ask("t"), Task: policy.Task{WorkDir: "/"}}},
		Unknown: []policy.TaskRequest{ask("v")}, Foreign: []policy.TaskRequest{ask("u")},
		Allowed: []policy.Access{{Principal: ann, Verb: policy.VerbRead}}, Denied: []policy.Access{{Principal: ann, Verb: policy.VerbType}},
	})
}

func TestReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.json")
	write(t, path, text("one", ""))
	p, said := opened(t, path)
	for _, step := range []struct {
		name   string
		change func()
		want   string // the user of the token
		says   int    // number of log lines so far
	}{
		{"unchanged", func() {}, "one", 0},
		{"longer", func() { write(t, path, text("second", "")) }, "second", 1},
		{"not to be used", func() { write(t, path, "{") }, "second", 2},
		{"still not", func() {}, "second", 2},
		{"removed", func() { os.Remove(path) }, "second", 3},
		{"still removed", func() {}, "second", 3},
		{"back", func() { write(t, path, text("third", "")) }, "third", 4},
		{"a directory", func() { os.Remove(path); os.Mkdir(path, 0o700) }, "third", 5},
	} {
		step.change()
		got, err := p.Authenticate(t.Context(), policy.Credentials{Token: token, UID: -1})
		if lines := strings.Count(said.String(), "\n"); err != nil || got.User != step.want || lines != step.says {
			t.Errorf("%s: got %q %v and %d lines, want %q and %d: %s", step.name, got.User, err, lines, step.want, step.says, said)
		}
	}
}

func TestReadWhileAsked(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.json")
	write(t, path, text("a", ""))
	p, _ := opened(t, path)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 100 {
				if got, err := p.Authenticate(t.Context(), policy.Credentials{Token: token}); err != nil || strings.Trim(got.User, "a") != "" {
					t.Errorf("got %+v %v", got, err)
				}
			}
		})
	}
	for i := range 50 {
		write(t, path+".new", text(strings.Repeat("a", 1+i), ""))
		if err := os.Rename(path+".new", path); err != nil {
			t.Error(err)
		}
	}
	asking.Wait()
}

func TestOpen(t *testing.T) {
	if _, err := open(filepath.Join(t.TempDir(), "none"), hclog.NewNullLogger()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

// An event that cannot be written is logged, and causes no error.
func TestNoAudit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.json")
	write(t, path, text("ann", filepath.Join(dir, "none", "audit")))
	p, said := opened(t, path)
	if err := p.Observe(t.Context(), policy.Event{Kind: policy.EventHello}); err != nil || !strings.Contains(said.String(), "not written to the audit") {
		t.Errorf("got %v and %q, want that it is not in the audit", err, said)
	}
}
