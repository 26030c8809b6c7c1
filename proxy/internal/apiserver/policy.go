package apiserver

import (
	"context"
	"maps"
	"os"

	"holdfast/protocol"
	"holdfast/shared/config"
)

// A Policy decides what the supervisor does not know: what a task is, and who
// may have it.
type Policy interface {
	// ResolveTask says what to start for a task. Errors: task_not_found,
	// workspace_mismatch.
	ResolveTask(ctx context.Context, request TaskRequest) (Task, error)
}

// TaskRequest names a task, as a client did.
type TaskRequest struct {
	TaskID, WorkspaceID, UserID string
}

// A Task is what to start.
type Task struct {
	WorkDir string            // absolute; "" is task_not_found
	Argv    []string          // empty is the login shell
	Env     []string          // K=V, on top of the inherited environment
	Labels  map[string]string // besides the ids of the request
}

// AllowAll is the policy of a proxy without another: every task of this user
// exists, in the home directory.
type AllowAll struct{}

// ResolveTask implements Policy.
func (AllowAll) ResolveTask(_ context.Context, r TaskRequest) (Task, error) {
	if r.TaskID == "" {
		return Task{}, protocol.Errorf(protocol.CodeTaskNotFound, "task_id is empty")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return Task{WorkDir: home, Env: []string{
		"HOLDFAST_TASK_ID=" + r.TaskID, "HOLDFAST_WORKSPACE_ID=" + r.WorkspaceID, "HOLDFAST_USER_ID=" + r.UserID,
	}}, nil
}

// taskSpec turns a task into what the supervisor starts.
func taskSpec(m TaskRequest, task Task, size protocol.Size) (protocol.SpawnSpec, error) {
	if task.WorkDir == "" {
		return protocol.SpawnSpec{}, protocol.Errorf(protocol.CodeTaskNotFound, "task "+m.TaskID+" has no work dir")
	}
	labels := map[string]string{
		protocol.LabelTask: m.TaskID, protocol.LabelWorkspace: m.WorkspaceID, protocol.LabelUser: m.UserID,
	}
	maps.Copy(labels, task.Labels)
	spec := protocol.SpawnSpec{
		Argv: task.Argv, Cwd: task.WorkDir, Env: task.Env, Labels: labels,
		Cols: size.Cols, Rows: size.Rows,
	}
	if len(spec.Argv) == 0 {
		spec.Argv = []string{config.LoginShell(), "-l"}
	}
	return spec, nil
}
