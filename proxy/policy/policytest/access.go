package policytest

import (
	"strings"

	"holdfast/proxy/policy"
)

func allowed(q asker, s Subject) {
	for _, a := range s.Allowed {
		if code, ok := q.authorize(a); ok && code != "" {
			q.Errorf("%s: refused with %s, want a yes", access(a), code)
		}
	}
}

func denied(q asker, s Subject) {
	for _, a := range s.Denied {
		if code, ok := q.authorize(a); ok && code == "" {
			q.Errorf("%s: got a yes, want %s", access(a), policy.CodePermissionDenied)
		}
	}
}

// unknownVerbs asks about unknown verbs, because a newer proxy may. The policy may allow or
// refuse them.
func unknownVerbs(q asker, s Subject) {
	for _, p := range principals(s) {
		for _, verb := range append([]string{"", "policytest", "READ", "read "}, odd...) {
			q.authorize(policy.Access{Principal: p, Verb: policy.Verb(verb), SessionID: "policytest"})
		}
	}
}

// events sends events of all kinds. A policy must accept each one, and should ignore unknown
// kinds.
func events(q asker, s Subject) {
	kinds := []string{
		policy.EventHello, policy.EventRefused, policy.EventSpawned, policy.EventAttached, policy.EventDetached,
		policy.EventTerminated, policy.EventExited, "policytest", "",
	}
	q.observe(policy.Event{})
	for _, p := range principals(s) {
		for _, kind := range append(kinds, odd...) {
			q.observe(policy.Event{Kind: kind, Principal: p, SessionID: "policytest", Code: policy.CodeUnauthorized, ExitCode: -1})
		}
	}
	for _, size := range []int{policy.MaxLabelBytes, 1 << 20} {
		q.observe(policy.Event{Kind: policy.EventSpawned, Labels: map[string]string{"policytest": strings.Repeat("x", size)}})
	}
	many := map[string]string{}
	for _, text := range odd {
		many[text] = text
	}
	q.observe(policy.Event{Kind: policy.EventSpawned, Labels: many})
}
