package policytest

import (
	"context"
	"fmt"
	"sync"

	"holdfast/proxy/policy"
)

// A question is a question with one answer, which is compared as text.
type question struct {
	name string
	ask  func(asker) (answer string, ok bool)
}

// questions returns all questions of the subject, and some to which the subject has no answer.
func questions(s Subject) (all []question) {
	addPrincipal := func(c policy.Credentials) {
		all = append(all, question{credentials(c), func(q asker) (string, bool) {
			p, code, ok := q.authenticate(c)
			return fmt.Sprintf("%+v %s", p, code), ok
		}})
	}
	addTask := func(r policy.TaskRequest) {
		all = append(all, question{task(r), func(q asker) (string, bool) {
			t, code, ok := q.resolve(r)
			return fmt.Sprintf("%+v %s", t, code), ok
		}})
	}
	addAccess := func(a policy.Access) {
		all = append(all, question{access(a), func(q asker) (string, bool) { return q.authorize(a) }})
	}
	for token := range s.Tokens {
		addPrincipal(policy.Credentials{Token: token, Transport: policy.TransportWebSocket, UID: -1})
	}
	for uid := range s.UIDs {
		addPrincipal(policy.Credentials{Transport: policy.TransportUnix, UID: uid})
	}
	addPrincipal(policy.Credentials{Token: "policytest-nobody", Transport: policy.TransportRaw, UID: -1})
	for _, known := range s.Tasks {
		addTask(known.Request)
	}
	for _, r := range append(append([]policy.TaskRequest{{TaskID: "policytest"}}, s.Unknown...), s.Foreign...) {
		addTask(r)
	}
	for _, a := range append(append([]policy.Access{{Verb: policy.VerbRead}}, s.Allowed...), s.Denied...) {
		addAccess(a)
	}
	return all
}

func sameAnswer(q asker, s Subject) {
	all := questions(s)
	first := make([]string, len(all))
	for round := range 3 { // each round asks all questions, because one question may change the answer to another
		for i, one := range all {
			answer, ok := one.ask(q)
			switch {
			case !ok:
				return
			case round == 0:
				first[i] = answer
			case answer != first[i]:
				q.Errorf("%s: got %s, and before %s", one.name, answer, first[i])
			}
		}
	}
}

// atTheSameTime asks questions concurrently. It checks the answers, and lets the race detector
// check the policy.
func atTheSameTime(q asker, s Subject) {
	all := questions(s)
	alone := make([]string, len(all))
	for i, one := range all {
		var ok bool
		if alone[i], ok = one.ask(q); !ok {
			return
		}
	}
	var asking sync.WaitGroup
	for worker := range 8 {
		asking.Go(func() {
			for k := range 4 * len(all) {
				i := (k + worker) % len(all)
				if answer, ok := all[i].ask(q); ok && answer != alone[i] {
					q.Errorf("%s: got %s, and alone %s", all[i].name, answer, alone[i])
				}
				q.observe(policy.Event{Kind: policy.EventAttached, SessionID: "policytest"})
			}
		})
	}
	asking.Wait()
}

// gaveUp calls each method with a canceled context. The call must return; any answer is right.
func gaveUp(q asker, s Subject) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, call := range map[string]func(context.Context) error{
		"authenticate": func(ctx context.Context) error {
			_, err := q.policy.Authenticate(ctx, policy.Credentials{Token: "policytest", Transport: policy.TransportUnix, UID: -1})
			return err
		},
		"resolve task": func(ctx context.Context) error {
			_, err := q.policy.ResolveTask(ctx, policy.TaskRequest{TaskID: "policytest"})
			return err
		},
		"authorize": func(ctx context.Context) error {
			return q.policy.Authorize(ctx, policy.Access{Verb: policy.VerbRead, SessionID: "policytest"})
		},
		"observe": func(ctx context.Context) error { return q.policy.Observe(ctx, policy.Event{Kind: policy.EventHello}) },
	} {
		_, _ = q.returns(ctx, name+" of a caller that gave up", call)
	}
	for _, one := range questions(s) { // the policy must still answer other callers
		one.ask(q)
	}
}
