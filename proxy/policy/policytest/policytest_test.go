package policytest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/proxy/policy"
)

var (
	ann     = policy.Principal{User: "ann", Workspace: "w", Roles: []string{"dev"}}
	root    = policy.Principal{User: "root", All: true}
	build   = policy.TaskRequest{Principal: ann, TaskID: "build", WorkspaceID: "w"}
	subject = Subject{
		Tokens: map[string]policy.Principal{"ann's token": ann}, UIDs: map[int]policy.Principal{0: root}, Strangers: []int{1, 1000},
		Tasks:   []Known{{build, policy.Task{WorkDir: "/src", Argv: []string{"make"}, Labels: map[string]string{"a": "b"}}}},
		Unknown: []policy.TaskRequest{{Principal: ann, TaskID: "nothing"}},
		Foreign: []policy.TaskRequest{{Principal: policy.Principal{User: "bob", Workspace: "v"}, TaskID: "build", WorkspaceID: "v"}},
		Allowed: []policy.Access{{Principal: ann, Verb: policy.VerbRead, SessionID: "s"}},
		Denied:  []policy.Access{{Principal: ann, Verb: policy.VerbTerminate, SessionID: "s"}},
	}
)

// model is a policy that keeps all promises. A test replaces one method by a wrong one.
type model struct {
	authenticate func(context.Context, policy.Credentials) (policy.Principal, error)
	resolve      func(context.Context, policy.TaskRequest) (policy.Task, error)
	authorize    func(context.Context, policy.Access) error
	observe      func(context.Context, policy.Event) error
}

func (m *model) Authenticate(ctx context.Context, c policy.Credentials) (policy.Principal, error) {
	return m.authenticate(ctx, c)
}

func (m *model) ResolveTask(ctx context.Context, r policy.TaskRequest) (policy.Task, error) {
	return m.resolve(ctx, r)
}
func (m *model) Authorize(ctx context.Context, a policy.Access) error { return m.authorize(ctx, a) }
func (m *model) Observe(ctx context.Context, e policy.Event) error    { return m.observe(ctx, e) }

func good() *model {
	return &model{
		authenticate: func(_ context.Context, c policy.Credentials) (policy.Principal, error) {
			switch {
			case c.Token == "ann's token":
				return ann, nil
			case c.Token == "" && c.UID == 0:
				return root, nil
			}
			return policy.Principal{}, policy.Refuse(policy.CodeUnauthorized, "unknown token")
		},
		resolve: func(_ context.Context, r policy.TaskRequest) (policy.Task, error) {
			switch {
			case r.TaskID != "build":
				return policy.Task{}, nil // an answer without a work dir
			case r.Principal.Workspace != "w":
				return policy.Task{}, policy.Refuse(policy.CodeWorkspaceMismatch, "it is another's")
			}
			return subject.Tasks[0].Task, nil
		},
		authorize: func(_ context.Context, a policy.Access) error {
			if a.Verb == policy.VerbTerminate {
				return policy.Refuse(policy.CodePermissionDenied, "it lives")
			}
			return nil
		},
		observe: func(context.Context, policy.Event) error { return nil },
	}
}

// heard keeps the complaints of the checks.
type heard struct {
	mu         sync.Mutex
	complaints []string
}

func (h *heard) Helper() {}
func (h *heard) Errorf(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.complaints = append(h.complaints, fmt.Sprintf(format, args...))
}

// complaints runs each check and returns its complaint. The clock is fake, so that the time-outs cost no time.
func complaints(t *testing.T, p policy.Policy, s Subject) map[string]string {
	t.Helper()
	all := map[string]string{}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range checks {
			if c.lacks != nil && c.lacks(s) != "" {
				continue
			}
			var h heard
			c.run(asker{&h, p}, s)
			if len(h.complaints) > 0 {
				all[c.name] = strings.Join(h.complaints, "\n")
			}
		}
		time.Sleep(48 * time.Hour) // a call that hangs returns before the bubble ends
	})
	return all
}

func TestGood(t *testing.T) {
	for check, says := range complaints(t, good(), subject) {
		t.Errorf("%s: %s", check, says)
	}
	Run(t, good(), subject)
}

// Each wrong policy is found by the check for its fault, and each check finds one of them.
func TestWrong(t *testing.T) {
	caught := map[string]bool{}
	for _, tt := range wrong {
		t.Run(tt.name, func(t *testing.T) {
			m := good()
			tt.harm(m)
			got := complaints(t, m, subject)
			if !strings.Contains(got[tt.check], tt.says) || got[tt.check] == "" {
				t.Errorf("%s complains %q, want %q; the checks with complaints are %v", tt.check, got[tt.check], tt.says, slices.Sorted(maps.Keys(got)))
			}
			caught[tt.check] = true
		})
	}
	for _, c := range checks {
		if !caught[c.name] {
			t.Errorf("the check %q finds no wrong policy", c.name)
		}
	}
}

// Checks that need a missing field of the subject are skipped, and reported as skipped.
func TestEmptySubject(t *testing.T) {
	skipped := 0
	for _, c := range checks {
		if c.lacks != nil && c.lacks(Subject{}) != "" {
			skipped++
		}
	}
	if want := 8; skipped != want {
		t.Errorf("%d checks are skipped, want %d", skipped, want)
	}
	for check, says := range complaints(t, policy.Allow{}, Subject{}) {
		t.Errorf("%s: %s", check, says)
	}
}
