// Package examples tests the example policies, and the built-in one, as the proxy
// runs them: as programs, over go-plugin, with certificates of their own.
//
// Invariant: all of them give the same answers. The language of a policy makes no
// difference.
//
// Not here: the examples (file, python), the promises (package policytest).
package examples

import (
	"os"
	"path/filepath"
	"testing"

	"holdfast/proxy/policy"
	"holdfast/proxy/policy/policytest"
)

func TestAllow(t *testing.T) {
	own := os.Getuid()
	if own < 0 {
		t.Skip("there are no user ids here")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	me, err := policy.Allow{}.Authenticate(t.Context(), policy.Credentials{Transport: policy.TransportUnix, UID: own})
	if err != nil {
		t.Fatal(err)
	}
	policytest.Run(t, policy.Allow{}, policytest.Subject{
		UIDs:      map[int]policy.Principal{own: me},
		Strangers: []int{own + 1, own + 1000},
		Tasks:     []policytest.Known{{Request: policy.TaskRequest{Principal: me, TaskID: "any"}, Task: policy.Task{WorkDir: home}}},
		Allowed:   []policy.Access{{Principal: me, Verb: policy.VerbTerminate, SessionID: "s"}},
	})
}

// Both examples read the example's file, and keep the promises of policytest.
func TestExamples(t *testing.T) {
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			dir := shortDir(t)
			audit := filepath.Join(dir, "audit")
			asked := start(t, p.command(t), dir, config(t, dir, map[string]string{`"audit": ""`: `"audit": "` + audit + `"`}))
			policytest.Run(t, asked, subject)
			checkAudit(t, asked, audit)
		})
	}
}

var (
	ann       = policy.Principal{User: "ann", Workspace: "shop", Roles: []string{"developer"}}
	wallboard = policy.Principal{User: "wallboard", Workspace: "shop", Roles: []string{"viewer"}}
	operator  = policy.Principal{User: "operator", Roles: []string{"developer", "admin"}, All: true}

	shop = policy.Task{
		WorkDir: "/srv/shop", Argv: []string{"agent", "--resume"}, Env: []string{"LANG=C.UTF-8", "EMPTY="},
		Labels: map[string]string{"project": "shop"}, IssueID: "SHOP-42", PriorAgentSessionID: "a1b2",
	}
	ledger = policy.Task{WorkDir: "/srv/ledger"}

	// subject agrees with the example's file.
	subject = policytest.Subject{
		Tokens:    map[string]policy.Principal{annToken: ann, wallboardToken: wallboard, operatorToken: operator},
		UIDs:      map[int]policy.Principal{1000: ann},
		Strangers: []int{0, 1, 1001},
		Tasks: []policytest.Known{
			{Request: request(ann, "checkout", "shop"), Task: shop},
			{Request: request(operator, "checkout", "shop"), Task: shop},
			{Request: request(operator, "books", "ledger"), Task: ledger},
		},
		Unknown: []policy.TaskRequest{request(ann, "chekcout", "shop"), request(operator, "CHECKOUT", "shop"), request(policy.Principal{}, "none", "")},
		Foreign: []policy.TaskRequest{
			request(ann, "books", "shop"), request(ann, "books", "ledger"), request(operator, "books", "shop"), request(operator, "books", ""),
			request(policy.Principal{}, "books", ""), request(policy.Principal{}, "books", "ledger"),
		},
		Allowed: []policy.Access{
			access(ann, policy.VerbSpawn), access(ann, policy.VerbType), access(wallboard, policy.VerbRead),
			access(operator, policy.VerbTerminate), access(operator, policy.VerbType),
		},
		Denied: []policy.Access{
			access(ann, policy.VerbTerminate), access(wallboard, policy.VerbType), access(wallboard, policy.VerbSpawn),
			access(policy.Principal{User: "ann", Workspace: "shop"}, policy.VerbRead),
			access(policy.Principal{User: "ann", Workspace: "shop", Roles: []string{"Developer", ""}}, policy.VerbRead),
			access(policy.Principal{All: true}, policy.VerbList), access(operator, "fly"),
		},
	}
)

func request(p policy.Principal, id, workspace string) policy.TaskRequest {
	return policy.TaskRequest{Principal: p, TaskID: id, WorkspaceID: workspace, UserID: p.User}
}

func access(p policy.Principal, v policy.Verb) policy.Access {
	return policy.Access{
		Principal: p, Verb: v, SessionID: "s", Labels: map[string]string{"workspace_id": p.Workspace}, Argv: []string{"sh"}, WorkDir: "/",
	}
}
