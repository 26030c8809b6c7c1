package policy

import (
	"strings"
	"time"

	"holdfast/proxy/policy/policypb"
)

// An empty slice or map arrives as nil, because the wire format does not distinguish them.

func toPrincipal(p Principal) *policypb.Principal {
	return &policypb.Principal{User: p.User, Workspace: p.Workspace, Roles: p.Roles, All: p.All}
}

func fromPrincipal(p *policypb.Principal) Principal {
	return Principal{User: p.GetUser(), Workspace: p.GetWorkspace(), Roles: p.GetRoles(), All: p.GetAll()}
}

func toTask(t Task) *policypb.ResolveTaskResponse {
	return &policypb.ResolveTaskResponse{
		WorkDir: t.WorkDir, Argv: t.Argv, Env: t.Env, Labels: t.Labels, IssueId: t.IssueID, PriorAgentSessionId: t.PriorAgentSessionID,
	}
}

func fromTask(t *policypb.ResolveTaskResponse) Task {
	return Task{
		WorkDir: t.WorkDir, Argv: t.Argv, Env: t.Env, Labels: t.Labels, IssueID: t.IssueId, PriorAgentSessionID: t.PriorAgentSessionId,
	}
}

// toEvent converts an event, and replaces bytes that are not UTF-8 by U+FFFD.
func toEvent(e Event) *policypb.ObserveRequest {
	q := &policypb.ObserveRequest{
		AtUnixMs: e.At.UnixMilli(), Kind: valid(e.Kind), SessionId: valid(e.SessionID), Verb: valid(string(e.Verb)),
		Code: valid(e.Code), ExitCode: int64(e.ExitCode),
		Principal: &policypb.Principal{User: valid(e.Principal.User), Workspace: valid(e.Principal.Workspace), All: e.Principal.All},
	}
	for _, r := range e.Principal.Roles {
		q.Principal.Roles = append(q.Principal.Roles, valid(r))
	}
	if len(e.Labels) > 0 {
		q.Labels = make(map[string]string, len(e.Labels))
	}
	for k, v := range e.Labels {
		q.Labels[valid(k)] = valid(v)
	}
	return q
}

func fromEvent(q *policypb.ObserveRequest) Event {
	return Event{
		At: time.UnixMilli(q.AtUnixMs).UTC(), Kind: q.Kind, Principal: fromPrincipal(q.Principal), SessionID: q.SessionId,
		Labels: q.Labels, Verb: Verb(q.Verb), Code: q.Code, ExitCode: int(q.ExitCode),
	}
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
