package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"slices"

	"github.com/hashicorp/go-hclog"

	"holdfast/proxy/policy"
)

// filePolicy decides as its file says.
type filePolicy struct {
	store *store
	log   hclog.Logger
}

// Authenticate implements policy.Policy. A token counts, and the uid only
// where there is none.
func (p *filePolicy) Authenticate(_ context.Context, c policy.Credentials) (policy.Principal, error) {
	users := p.store.config().Users
	found := -1
	switch {
	case c.Token != "":
		found = byToken(users, c.Token)
	case c.UID >= 0:
		found = slices.IndexFunc(users, func(u user) bool { return u.UID != nil && *u.UID == c.UID })
	}
	if found < 0 {
		return policy.Principal{}, policy.Refuse(policy.CodeUnauthorized, "this proxy does not know you")
	}
	return users[found].principal(), nil
}

// byToken compares with every token, each in constant time, so that how long it
// takes says nothing.
func byToken(users []user, token string) int {
	sum, found := sha256.Sum256([]byte(token)), -1
	for i, u := range users {
		for _, s := range u.sums {
			if subtle.ConstantTimeCompare(sum[:], s) == 1 {
				found = i
			}
		}
	}
	return found
}

// ResolveTask implements policy.Policy.
func (p *filePolicy) ResolveTask(_ context.Context, r policy.TaskRequest) (policy.Task, error) {
	tasks := p.store.config().Tasks
	i := slices.IndexFunc(tasks, func(t task) bool { return t.ID == r.TaskID })
	if i < 0 { // "" is no task's id
		return policy.Task{}, policy.Refuse(policy.CodeTaskNotFound, "there is no such task")
	}
	// The session is given the workspace of the request, so that has to be right
	// also for whoever sees all.
	of := tasks[i].Workspace
	if of != r.WorkspaceID || !r.Principal.All && of != r.Principal.Workspace {
		return policy.Task{}, policy.Refuse(policy.CodeWorkspaceMismatch, "the task is of another workspace")
	}
	return tasks[i].task(), nil
}

// Authorize implements policy.Policy.
func (p *filePolicy) Authorize(_ context.Context, a policy.Access) error {
	rules := p.store.config().Rules
	for _, role := range a.Principal.Roles {
		if slices.Contains(rules[role], a.Verb) {
			return nil
		}
	}
	return policy.Refuse(policy.CodePermissionDenied, "none of your roles may do this")
}

// Observe implements policy.Policy. What cannot be written is no reason to let
// nobody in any more, so it is only logged.
func (p *filePolicy) Observe(_ context.Context, e policy.Event) error {
	if path := p.store.config().Audit; path != "" {
		if err := audit(path, e); err != nil {
			p.log.Error("an event is not in the audit", "kind", e.Kind, "error", err)
		}
	}
	return nil
}
