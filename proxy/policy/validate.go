package policy

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// Limits of an answer. A task within its limits can be started; the environment and the labels
// that the request adds are not counted.
const (
	MaxNameBytes  = 256       // of a user, a workspace or a role
	MaxRoles      = 64        // roles of a principal
	MaxArgs       = 4096      // entries of argv, and entries of env
	MaxTaskBytes  = 512 << 10 // of argv, env and work dir together, with a NUL for each entry
	MaxDirBytes   = 4 << 10   // of the work dir
	MaxLabels     = 64        // labels of a task
	MaxLabelBytes = 16 << 10  // of all keys and values of a task's labels
	MaxIDBytes    = 256       // of the issue's id and of the prior agent session's id
)

// faults collects the faults of an answer.
type faults []error

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Validate returns an error that joins all faults of a principal, or nil.
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

// Validate returns an error that joins all faults of a task, or nil. An empty WorkDir is no
// fault, because it means that the task does not exist.
func (t Task) Validate() error {
	var f faults
	// path is used instead of filepath, because a session is started on a system whose paths
	// begin with a slash.
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
	for i, e := range t.Env { // values are not quoted, because they may be secrets
		total += len(e) + 1
		f.check(strings.IndexByte(e, '=') > 0 && !hasNUL(e), "env[%d]: not K=V", i)
	}
	f.check(total <= MaxTaskBytes, "argv, env and work_dir: more than %d bytes", MaxTaskBytes)

	f.labels(t.Labels)
	// These become the values of environment variables.
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
