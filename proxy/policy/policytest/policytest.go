// Package policytest tries whether a policy, in whatever language, holds what
// package policy promises.
//
//	func TestPolicy(t *testing.T) {
//		policytest.Run(t, p, policytest.Subject{Tokens: ..., Tasks: ...})
//	}
//
// A policy that is a program is asked through go-plugin, as the proxy does:
// ../examples shows how.
//
// Invariant: what a Subject does not say is skipped where it shows, and never
// taken for held.
//
// Not here: how long a policy may take in the proxy (package policyhost). Here
// it has ten seconds, so that a slow machine is no fault of the policy's.
package policytest

import (
	"testing"

	"holdfast/proxy/policy"
)

// A Subject is what the policy under test knows. What it has none of is left
// empty.
type Subject struct {
	Tokens    map[string]policy.Principal // whose each token is, on every transport
	UIDs      map[int]policy.Principal    // whose each proved user id is
	Strangers []int                       // user ids that are nobody's

	Tasks   []Known              // the policy says what to start for them
	Unknown []policy.TaskRequest // there are no such tasks
	Foreign []policy.TaskRequest // tasks of another workspace than the principal may see

	Allowed []policy.Access
	Denied  []policy.Access
}

// Known is a task, and what is to be started for it.
type Known struct {
	Request policy.TaskRequest
	Task    policy.Task
}

// Run asks p about everything that policy.Policy promises, each promise in a
// subtest.
func Run(t *testing.T, p policy.Policy, s Subject) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if c.lacks != nil {
				if why := c.lacks(s); why != "" {
					t.Skip("not tried: " + why)
				}
			}
			c.run(asker{t, p}, s)
		})
	}
}

// A check tries one promise, and says all that is wrong.
type check struct {
	name  string
	lacks func(Subject) string // what the subject lacks for it, or ""
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

func none(what string, count func(Subject) int) func(Subject) string {
	return func(s Subject) string {
		if count(s) == 0 {
			return "the subject names no " + what
		}
		return ""
	}
}
