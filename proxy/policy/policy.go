// Package policy lets a program decide about clients of the proxy: the identity of a client, the
// command of a task, and the permission of a client to use a session.
//
// A policy is a program that the proxy starts (proxy serve --policy ./program) and asks over
// gRPC; policypb/policy.proto defines the messages for other languages. A policy in Go implements
// Policy and calls Serve; package policytest checks that it keeps the promises of this package.
//
// Invariant: if a policy does not answer in time, has crashed, or gives an invalid answer, the
// proxy refuses the request.
//
// Not here: when the proxy asks (package apiserver), how it keeps a policy running (package
// policyhost).
package policy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Policy decides about clients, tasks and sessions. Its methods must allow concurrent calls. An
// error that is not a *Refusal means that the policy does not work.
type Policy interface {
	// Authenticate returns the principal of a client, once, when the client says hello. It must
	// refuse an unknown token and an unknown user. Refusals: unauthorized.
	Authenticate(ctx context.Context, c Credentials) (Principal, error)
	// ResolveTask returns the command to start for a task. If the task belongs to another
	// workspace than the request names, it must be refused even for a principal that sees all
	// workspaces, because the session gets the request's workspace as its label workspace_id.
	// Refusals: task_not_found, workspace_mismatch.
	ResolveTask(ctx context.Context, r TaskRequest) (Task, error)
	// Authorize returns nil if a principal may do something with a session. It is asked only
	// about sessions of the principal's own workspace, because the principal does not see other
	// sessions. Refusals: permission_denied.
	Authorize(ctx context.Context, a Access) error
	// Observe receives events, for an audit. It decides nothing. If events come faster than it
	// returns, some are dropped. If a session ends during a handoff, the policies of both proxies may
	// receive its event, with the same time.
	Observe(ctx context.Context, e Event) error
}

// The codes of a Refusal. They equal the api's codes of the same names.
const (
	CodeUnauthorized      = "unauthorized"
	CodePermissionDenied  = "permission_denied"
	CodeTaskNotFound      = "task_not_found"
	CodeWorkspaceMismatch = "workspace_mismatch"
)

// A Refusal is a negative answer of a policy.
type Refusal struct {
	Code    string // one of the codes above
	Message string // for the client's user; cut to 1 KiB
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Is reports whether target is a Refusal with the same code, for errors.Is.
func (r *Refusal) Is(target error) bool {
	var other *Refusal
	return errors.As(target, &other) && other.Code == r.Code
}

// Refuse returns a Refusal as an error.
func Refuse(code, message string) error { return &Refusal{code, message} }

// The transports of clients.
const (
	TransportUnix      = "unix"
	TransportWebSocket = "websocket"
	TransportRaw       = "raw"  // a WebSocket that shows one session and has no hello
	TransportPipe      = "pipe" // a named pipe, on Windows
	TransportGate      = "gate" // a connection to a gate; the UID is that of the gate if the client has the gate's token
)

// Credentials are the proofs that a client shows. Either Token or UID is set.
type Credentials struct {
	Token     string // of the client's hello; "" if it has none
	Transport string // one of the transports above; later versions may add others
	UID       int    // the peer's proven user id, or -1; on Windows, which has no user ids, 0 is this user
	PID       int    // the peer's process id, or 0 if it is not known
	Client    string // the name that the client gives itself; it proves nothing
}

// A Principal is the identity of a client.
type Principal struct {
	User string // at most 256 bytes
	// Workspace selects the visible sessions: those whose label workspace_id is equal. At most
	// 256 bytes; "" selects the sessions without that label.
	Workspace string
	Roles     []string // for Authorize; fixed at hello; at most 64, of 256 bytes each
	All       bool     // the principal sees the sessions of every workspace
}

// A TaskRequest names a task; the client has sent it.
type TaskRequest struct {
	Principal Principal
	TaskID    string
	// If the principal sees all workspaces, the values that the client has sent; otherwise those
	// of the principal.
	WorkspaceID, UserID string
}

// A Task describes the session to start for a task.
type Task struct {
	WorkDir string            // absolute; "" means task_not_found
	Argv    []string          // empty means the login shell
	Env     []string          // K=V, added to the inherited environment and to the variables below
	Labels  map[string]string // added to the ids of the request
	// The child receives these as HOLDFAST_ISSUE_ID and HOLDFAST_PRIOR_AGENT_SESSION_ID, unless
	// they are "". Each has at most 256 bytes. HOLDFAST_WORKSPACE_ID, HOLDFAST_TASK_ID and
	// HOLDFAST_USER_ID come from the request.
	IssueID, PriorAgentSessionID string
}

// A Verb is a kind of access.
type Verb string

// The verbs.
const (
	VerbSpawn     Verb = "spawn"     // start a session, or start it again
	VerbList      Verb = "list"      // list sessions and receive their events; SessionID is "" for all
	VerbRead      Verb = "read"      // read the session's screen, history and output
	VerbType      Verb = "type"      // read it, send input, interrupt and resize it
	VerbTerminate Verb = "terminate" // end, signal or forget it
)

// An Access is an action that a principal requests.
type Access struct {
	Principal Principal
	Verb      Verb
	SessionID string            // "" means all sessions, or a session that gets its id later
	Labels    map[string]string // labels of the session, or the labels that a new session would have
	Argv      []string          // of spawn: the command to start
	WorkDir   string            // of spawn; "" means the home directory
}

// The kinds of events. A policy should ignore unknown kinds.
const (
	EventHello      = "hello"      // a client was accepted
	EventRefused    = "refused"    // a client or a request was refused; Code holds the reason
	EventSpawned    = "spawned"    // a session was started, or started again
	EventAttached   = "attached"   // a client attached to the session
	EventDetached   = "detached"   // a client detached from it
	EventTerminated = "terminated" // a client requested its end
	EventExited     = "exited"     // the session has ended; ExitCode is set
)

// An Event describes something that has happened, for an audit.
type Event struct {
	At        time.Time
	Kind      string
	Principal Principal // empty for exited
	SessionID string
	Labels    map[string]string // labels of the session, if they are known
	Verb      Verb              // of refused, if the request has a verb
	Code      string            // of refused: the error code
	ExitCode  int               // of exited: the exit code
}
