package policytest

import (
	"maps"
	"slices"

	"holdfast/proxy/policy"
)

// These functions treat nil and empty slices and maps as equal.

func samePrincipal(a, b policy.Principal) bool {
	return a.User == b.User && a.Workspace == b.Workspace && a.All == b.All && slices.Equal(a.Roles, b.Roles)
}

func sameTask(a, b policy.Task) bool {
	return a.WorkDir == b.WorkDir && slices.Equal(a.Argv, b.Argv) && slices.Equal(a.Env, b.Env) && maps.Equal(a.Labels, b.Labels) &&
		a.IssueID == b.IssueID && a.PriorAgentSessionID == b.PriorAgentSessionID
}

// principals returns all principals of a subject, and an empty one.
func principals(s Subject) []policy.Principal {
	all := append(slices.Collect(maps.Values(s.Tokens)), slices.Collect(maps.Values(s.UIDs))...)
	return append(all, policy.Principal{})
}
