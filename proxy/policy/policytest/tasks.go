package policytest

import "holdfast/proxy/policy"

func knownTasks(q asker, s Subject) {
	for _, known := range s.Tasks {
		got, code, ok := q.resolve(known.Request)
		switch {
		case !ok:
		case code != "":
			q.Errorf("%s: refused with %s, want a task", task(known.Request), code)
		case !sameTask(got, known.Task):
			q.Errorf("%s: got %+v, want %+v", task(known.Request), got, known.Task)
		}
	}
}

func unknownTasks(q asker, s Subject) {
	for _, r := range s.Unknown {
		q.noTask(r, policy.CodeTaskNotFound)
	}
}

func foreignTasks(q asker, s Subject) {
	for _, r := range s.Foreign {
		q.noTask(r, policy.CodeWorkspaceMismatch)
	}
}

// noTaskID asks for a task without an id, for each known principal and an empty one.
func noTaskID(q asker, s Subject) {
	for _, p := range principals(s) {
		q.noTask(policy.TaskRequest{Principal: p, WorkspaceID: p.Workspace, UserID: p.User}, policy.CodeTaskNotFound)
	}
}

func (q asker) noTask(r policy.TaskRequest, want string) {
	q.Helper()
	if got, code, ok := q.resolve(r); ok && code != want {
		q.Errorf("%s: got %+v and the code %q, want %s", task(r), got, code, want)
	}
}
