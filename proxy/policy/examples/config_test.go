package examples

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holdfast/proxy/policy"
)

// A policy that a user starts by hand explains itself, and one with an invalid file reports all mistakes. Neither
// starts.
func TestNotStarted(t *testing.T) {
	const cookie = "HOLDFAST_POLICY=holdfast.policy"
	for _, tt := range []struct {
		name    string
		env     []string
		changes map[string]string
		says    []string
	}{
		{"by hand", nil, nil, []string{""}},
		{"no file", []string{cookie, "HOLDFAST_POLICY_CONFIG="}, nil, []string{"HOLDFAST_POLICY_CONFIG"}},
		{"a file that is not there", []string{cookie, "HOLDFAST_POLICY_CONFIG=/nowhere/policy.json"}, nil, []string{"/nowhere/policy.json"}},
		{"no json", []string{cookie}, map[string]string{`"users"`: `users`}, []string{"invalid|not JSON"}},
		{"unknown fields", []string{cookie}, map[string]string{
			`"users": [`: `"users": [{"name": "bob"}, `, `"id": "books"`: `"id": "books", "cwd": "/"`,
		}, []string{"name", "cwd"}},
		{"every mistake", []string{cookie}, map[string]string{
			`"uid": 1000`: `"uid": -7`, `"roles": ["viewer"]`: `"roles": ["watcher"]`, `"/srv/ledger"`: `"srv/ledger"`,
			`"EMPTY="`: `"EMPTY"`, `["terminate"]`: `["kill"]`, `"audit": ""`: `"audit": "log"`, `"user": "operator",`: "",
		}, []string{"-7", "watcher", "tasks[1]", "work_dir", "tasks[0]", "env", "kill", "audit", "user is empty"}},
		{"a token instead of its hash", []string{cookie}, map[string]string{
			`"tokens_sha256": ["`: `"tokens_sha256": ["secret-token", "`,
		}, []string{"tokens_sha256[0] is not"}},
	} {
		for _, p := range programs {
			t.Run(tt.name+"/"+p.name, func(t *testing.T) {
				t.Parallel()
				cmd, dir := exec.Command(p.command(t)), shortDir(t)
				cmd.Env = append([]string{"PYTHONDONTWRITEBYTECODE=1", "HOLDFAST_POLICY_CONFIG=" + config(t, dir, tt.changes)}, tt.env...)
				var out, says bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &says
				err := cmd.Run()
				if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("got %v, want the code 1", err)
				}
				for _, want := range tt.says {
					a, b, _ := strings.Cut(want, "|")
					if !strings.Contains(says.String(), a) && (b == "" || !strings.Contains(says.String(), b)) {
						t.Errorf("the message is %s, want %q in it", &says, want)
					}
				}
				if out.Len() > 0 || says.Len() == 0 || strings.Contains(says.String(), "secret-token") || strings.Contains(says.String(), "Traceback") {
					t.Errorf("the output is %q and the message %s", &out, &says)
				}
			})
		}
	}
}

// A changed file is read again. If it is invalid, the last valid one stays.
func TestReload(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			path := config(t, dir, nil)
			asked := start(t, p.command(t), dir, path)
			is := func(step, token, want string) {
				t.Helper()
				got, err := asked.Authenticate(t.Context(), policy.Credentials{Token: token, Transport: policy.TransportWebSocket, UID: -1})
				no := policy.Refuse(policy.CodeUnauthorized, "")
				if got.User != want || want != "" && err != nil || want == "" && !errors.Is(err, no) {
					t.Errorf("%s: %q is %q %v, want %q", step, token, got.User, err, want)
				}
			}
			is("at first", annToken, "ann")
			config(t, dir, map[string]string{`"user": "ann"`: `"user": "anna"`})
			is("changed", annToken, "anna")
			replace(t, path, `{"users": [`)
			is("half a file", annToken, "anna")
			is("half a file", "another", "")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			is("no file", annToken, "anna")
			replace(t, path, `{}`)
			is("nobody", annToken, "")
		})
	}
}
