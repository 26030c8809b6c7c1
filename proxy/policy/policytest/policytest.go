// Package policytest checks whether a policy, in any language, keeps the promises of package
// policy.
//
//	func TestPolicy(t *testing.T) {
//		policytest.Run(t, p, policytest.Subject{Tokens: ..., Tasks: ...})
//	}
//
// A policy that is a program is asked through go-plugin, as the proxy does; ../examples shows
// how.
//
// Invariant: if a Subject lacks the data for a check, the check is reported as skipped, and never
// as passed.
//
// Not here: how long a policy may take in the proxy (package policyhost). This package waits ten
// seconds, because a slow machine is no fault of the policy.
package policytest

import (
	"testing"

	"holdfast/proxy/policy"
)

// A Subject is the knowledge of the policy under test. Fields without data may be empty.
type Subject struct {
	Tokens    map[string]policy.Principal // principal of each known token, on every transport
	UIDs      map[int]policy.Principal    // principal of each known user id
	Strangers []int                       // user ids that must be refused

	Tasks   []Known              // tasks that exist, and their commands
	Unknown []policy.TaskRequest // tasks that do not exist
	Foreign []policy.TaskRequest // tasks of a workspace that the principal may not use

	Allowed []policy.Access
	Denied  []policy.Access
}

// Known is a request for a task, and the expected answer.
type Known struct {
	Request policy.TaskRequest
	Task    policy.Task
}

// Run checks each promise of policy.Policy in a subtest of its own.
func Run(t *testing.T, p policy.Policy, s Subject) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if c.lacks != nil {
				if reason := c.lacks(s); reason != "" {
					t.Skip("not tried: " + reason)
				}
			}
			c.run(asker{t, p}, s)
		})
	}
}

// A check tests one promise and reports all violations.
type check struct {
	name  string
	lacks func(Subject) string // returns the data that the subject lacks, or ""
	run   func(asker, Subject)
}

var checks = []check{
	{"authenticate/known tokens", none("tokens", func(s Subject) int { return len(s.Tokens) }), knownTokens},
	{"authenticate/known uids", none("user ids", func(s Subject) int { return len(s.UIDs) }), knownUIDs},
	{"authenticate/unknown tokens", nil, unknownTokens},
	{"authenticate/unknown uids", none("strangers", func(s Subject) int { return len(s.Strangers) }), unknownUIDs},
	{"authenticate/no credentials", nil, noCredentials},
	{"resolve/known tasks", none("known tasks", func(s Subject) int { return len(s.Tasks) }), knownTasks},
	{"resolve/unknown tasks", none("unknown tasks", func(s Subject) int { return len(s.Unknown) }), unknownTasks},
	{"resolve/no task id", nil, noTaskID},
	{"resolve/other workspace", none("tasks of another workspace", func(s Subject) int { return len(s.Foreign) }), foreignTasks},
	{"authorize/allowed", none("allowed accesses", func(s Subject) int { return len(s.Allowed) }), allowed},
	{"authorize/denied", none("denied accesses", func(s Subject) int { return len(s.Denied) }), denied},
	{"authorize/unknown verbs", nil, unknownVerbs},
	{"observe", nil, events},
	{"odd text", nil, oddText},
	{"same answer", nil, sameAnswer},
	{"at the same time", nil, atTheSameTime},
	{"a caller that gave up", nil, gaveUp},
}

func none(data string, count func(Subject) int) func(Subject) string {
	return func(s Subject) string {
		if count(s) == 0 {
			return "the subject names no " + data
		}
		return ""
	}
}
