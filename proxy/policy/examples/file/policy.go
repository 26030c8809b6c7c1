package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"slices"

	"github.com/hashicorp/go-hclog"

	"holdfast/proxy/policy"
)

// A filePolicy decides by the content of its file.
type filePolicy struct {
	store *store
	log   hclog.Logger
}

// Authenticate implements policy.Policy. If the client shows a token, only the token counts;
// otherwise the uid.
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

// byToken returns the index of the user with this token, or -1. It compares all tokens in
// constant time, so that the duration does not reveal a token.
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
	if i < 0 { // "" is never the id of a task
		return policy.Task{}, policy.Refuse(policy.CodeTaskNotFound, "there is no such task")
	}
	// The session gets the request's workspace as its label, so the workspace must be right even
	// if the principal sees all workspaces.
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

// Observe implements policy.Policy. If an event cannot be written, that is only logged, because
// clients must still be able to connect.
func (p *filePolicy) Observe(_ context.Context, e policy.Event) error {
	if path := p.store.config().Audit; path != "" {
		if err := audit(path, e); err != nil {
			p.log.Error("event not written to the audit", "kind", e.Kind, "error", err)
		}
	}
	return nil
}
