package policy

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// The bounds of an answer. Those of a task are what can be started at all; what
// the request adds to its environment and labels counts on top of them.
const (
	MaxNameBytes  = 256       // a user, a workspace, a role
	MaxRoles      = 64        // of a principal
	MaxArgs       = 4096      // argv entries, environment entries
	MaxTaskBytes  = 512 << 10 // argv, environment and work dir together, and a NUL for each entry
	MaxDirBytes   = 4 << 10   // the work dir
	MaxLabels     = 64        // of a task
	MaxLabelBytes = 16 << 10  // all keys and values of a task's labels
	MaxIDBytes    = 256       // the issue, the prior agent session
)

// faults collects what is wrong with an answer.
type faults []error

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Validate returns what is wrong with a principal, all of it at once.
func (p Principal) Validate() error {
	var f faults
	f.check(len(p.User) <= MaxNameBytes, "user: more than %d bytes", MaxNameBytes)
	f.check(len(p.Workspace) <= MaxNameBytes, "workspace: more than %d bytes", MaxNameBytes)
	f.check(len(p.Roles) <= MaxRoles, "roles: more than %d", MaxRoles)
	for i, r := range p.Roles[:min(len(p.Roles), MaxRoles)] {
		f.check(len(r) <= MaxNameBytes, "roles[%d]: more than %d bytes", i, MaxNameBytes)
	}
	return errors.Join(f...)
}

// Validate returns what is wrong with a task, all of it at once. A WorkDir of ""
// is not wrong: it says that there is no such task.
func (t Task) Validate() error {
	var f faults
	// path, not filepath: what is started is started where paths begin with a slash.
	f.check(t.WorkDir == "" || path.IsAbs(t.WorkDir), "work_dir: %.200q is not absolute", t.WorkDir)
	f.check(len(t.WorkDir) <= MaxDirBytes, "work_dir: more than %d bytes", MaxDirBytes)
	f.check(!hasNUL(t.WorkDir), "work_dir: a NUL byte")

	f.check(len(t.Argv) <= MaxArgs, "argv: more than %d entries", MaxArgs)
	f.check(len(t.Env) <= MaxArgs, "env: more than %d entries", MaxArgs)
	f.check(len(t.Argv) == 0 || t.Argv[0] != "", "argv[0]: empty")
	total := len(t.WorkDir)
	for i, a := range t.Argv {
		total += len(a) + 1
		f.check(!hasNUL(a), "argv[%d]: a NUL byte", i)
	}
	for i, e := range t.Env { // a value may be a secret, so none is quoted
		total += len(e) + 1
		f.check(strings.IndexByte(e, '=') > 0 && !hasNUL(e), "env[%d]: not K=V", i)
	}
	f.check(total <= MaxTaskBytes, "argv, env and work_dir: more than %d bytes", MaxTaskBytes)

	f.labels(t.Labels)
	// They become the values of variables.
	f.check(len(t.IssueID) <= MaxIDBytes && !hasNUL(t.IssueID), "issue_id: more than %d bytes, or a NUL byte", MaxIDBytes)
	f.check(len(t.PriorAgentSessionID) <= MaxIDBytes && !hasNUL(t.PriorAgentSessionID),
		"prior_agent_session_id: more than %d bytes, or a NUL byte", MaxIDBytes)
	return errors.Join(f...)
}

func (f *faults) labels(labels map[string]string) {
	total := 0
	for k, v := range labels {
		total += len(k) + len(v)
		f.check(k != "", "labels: an empty key")
	}
	f.check(len(labels) <= MaxLabels, "labels: more than %d", MaxLabels)
	f.check(total <= MaxLabelBytes, "labels: more than %d bytes", MaxLabelBytes)
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }
