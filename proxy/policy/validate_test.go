package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestValidatePrincipal(t *testing.T) {
	name, long := strings.Repeat("n", MaxNameBytes), strings.Repeat("n", MaxNameBytes+1)
	for _, tt := range []struct {
		p    Principal
		says string // the complaints, separated by blanks; "" for none
	}{
		{Principal{}, ""},
		{Principal{User: name, Workspace: name, Roles: slices.Repeat([]string{name}, MaxRoles), All: true}, ""},
		{Principal{User: long}, "user"},
		{Principal{Workspace: long, Roles: []string{"", long}}, "workspace roles[1]"},
		{Principal{Roles: slices.Repeat([]string{""}, MaxRoles+1)}, "roles"},
	} {
		check(t, tt.p.Validate(), tt.says)
	}
}

func TestValidateTask(t *testing.T) {
	labels := map[string]string{}
	for i := range MaxLabels {
		labels[strconv.Itoa(100+i)] = strings.Repeat("v", MaxLabelBytes/MaxLabels-3)
	}
	with := func(k, v string) map[string]string {
		all := maps.Clone(labels)
		all[k] = v
		return all
	}
	long, argument := strings.Repeat("d", MaxDirBytes), strings.Repeat("a", MaxTaskBytes/2-1)
	for _, tt := range []struct {
		task Task
		says string
	}{
		{Task{}, ""},
		{Task{WorkDir: "/", Argv: []string{"sh", ""}, Env: []string{"A=b=c", "B="}, Labels: labels, IssueID: strings.Repeat("i", MaxIDBytes)}, ""},
		{Task{WorkDir: "/" + long[1:], Argv: slices.Repeat([]string{"a"}, MaxArgs), Env: slices.Repeat([]string{"A="}, MaxArgs)}, ""},
		{Task{Argv: []string{argument, argument}}, ""},
		{Task{WorkDir: "srv"}, "work_dir"},
		{Task{WorkDir: "/" + long}, "work_dir"},
		{Task{WorkDir: "/a\x00"}, "work_dir"},
		{Task{Argv: []string{""}}, "argv[0]"},
		{Task{Argv: []string{"a", "b\x00"}}, "argv[1]"},
		{Task{Env: []string{"A", "=b", "", "A=\x00", "A=b"}}, "env[0] env[1] env[2] env[3]"},
		{Task{Argv: slices.Repeat([]string{"a"}, MaxArgs+1), Env: slices.Repeat([]string{"A="}, MaxArgs+1)}, "argv env"},
		{Task{WorkDir: "/", Argv: []string{argument, argument}}, "argv, env and work_dir"},
		{Task{Labels: map[string]string{"": "v"}}, "labels"},
		{Task{Labels: with("100", labels["100"]+"v")}, "labels"},
		{Task{Labels: with("one more", "")}, "labels labels"}, // too many labels, and one that is too long
		{Task{IssueID: "\x00", PriorAgentSessionID: strings.Repeat("i", MaxIDBytes+1)}, "issue_id prior_agent_session_id"},
	} {
		check(t, tt.task.Validate(), tt.says)
	}
}

func check(t *testing.T, err error, want string) {
	t.Helper()
	var got []string
	if err != nil {
		for line := range strings.Lines(err.Error()) {
			field, _, _ := strings.Cut(line, ":")
			got = append(got, field)
		}
	}
	if says := strings.Join(got, " "); says != want {
		t.Errorf("the complaints are %q, want %q: %v", says, want, err)
	}
}
