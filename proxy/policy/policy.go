// Package policy is how a program of yours decides what the proxy does not
// know: who a client is, what a task is, and who may do what with which session.
//
// A policy is a program that the proxy starts (proxy serve --policy ./program)
// and asks over gRPC; policypb/policy.proto is all that another language needs.
// In Go it implements Policy and calls Serve; package policytest tries whether
// it holds what is promised here.
//
// Invariant: a policy that does not answer in time, that has crashed, or whose
// answer cannot be, is taken for a no.
//
// Not here: when the proxy asks (package apiserver), how it keeps a policy
// running (package policyhost).
package policy

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Policy decides. Its methods may be called at the same time. An answer that is
// neither a *Refusal nor a success is taken for a policy that does not work.
type Policy interface {
	// Authenticate says who a client is, once, when it says hello. It is asked
	// about whatever a client shows: a token, or a user, that it does not know is
	// refused.
	// Refusals: unauthorized.
	Authenticate(ctx context.Context, c Credentials) (Principal, error)
	// ResolveTask says what to start for a task. One of another workspace than the
	// request names is refused, also to who sees all: the session gets the label
	// workspace_id of the request. Refusals: task_not_found, workspace_mismatch.
	ResolveTask(ctx context.Context, r TaskRequest) (Task, error)
	// Authorize says whether a principal may do something. It is asked only about
	// sessions of the principal's own workspace: others do not exist for it.
	// Refusals: permission_denied.
	Authorize(ctx context.Context, a Access) error
	// Observe is told what happened, for an audit. It decides nothing, and what it
	// is told faster than it takes it is dropped.
	Observe(ctx context.Context, e Event) error
}

// The codes of a Refusal. Each is one of the api's codes, and means the same.
const (
	CodeUnauthorized      = "unauthorized"
	CodePermissionDenied  = "permission_denied"
	CodeTaskNotFound      = "task_not_found"
	CodeWorkspaceMismatch = "workspace_mismatch"
)

// A Refusal is a no.
type Refusal struct {
	Code    string // one of the codes above
	Message string // for the client's user; cut to 1 KiB
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// Is makes all refusals of one code the same for errors.Is.
func (r *Refusal) Is(target error) bool {
	var other *Refusal
	return errors.As(target, &other) && other.Code == r.Code
}

// Refuse returns a no.
func Refuse(code, message string) error { return &Refusal{code, message} }

// The transports that a client may come by.
const (
	TransportUnix      = "unix"
	TransportWebSocket = "websocket"
	TransportRaw       = "raw"  // a WebSocket that shows one session; there is no hello in it
	TransportPipe      = "pipe" // a named pipe, on Windows
)

// Credentials are what a client shows of itself. One of Token and UID is there.
type Credentials struct {
	Token     string // of its hello; "" where it has none
	Transport string // one of those above; others may come
	UID       int    // the peer's user id where it is proved, else -1; on Windows, which has none, 0 is this user
	PID       int    // the peer's process id where it is known, else 0
	Client    string // what it calls itself; proves nothing
}

// A Principal is who a client is.
type Principal struct {
	User string // at most 256 bytes
	// Workspace is whose sessions it sees: those whose label workspace_id is the
	// same. At most 256 bytes; "" sees those without that label.
	Workspace string
	Roles     []string // for Authorize, as they were at hello; at most 64, of 256 bytes each
	All       bool     // sees the sessions of every workspace
}

// TaskRequest names a task, as a client did.
type TaskRequest struct {
	Principal Principal
	TaskID    string
	// What the client claims, if the principal sees all, and else the principal's
	// own.
	WorkspaceID, UserID string
}

// A Task is what to start.
type Task struct {
	WorkDir string            // absolute; "" is task_not_found
	Argv    []string          // empty is the login shell
	Env     []string          // K=V, on top of the inherited environment and of what follows
	Labels  map[string]string // besides the ids of the request
	// What the child finds in its environment as HOLDFAST_ISSUE_ID and
	// HOLDFAST_PRIOR_AGENT_SESSION_ID, beside HOLDFAST_WORKSPACE_ID,
	// HOLDFAST_TASK_ID and HOLDFAST_USER_ID, which the request names. What is ""
	// is absent; each has at most 256 bytes.
	IssueID, PriorAgentSessionID string
}

// A Verb is what a client wants to do.
type Verb string

// The verbs.
const (
	VerbSpawn     Verb = "spawn"     // start a session, or start one again
	VerbList      Verb = "list"      // learn that sessions are there, and their events; SessionID is "" for all
	VerbRead      Verb = "read"      // see its screen, history and output
	VerbType      Verb = "type"      // read it, type into it, interrupt and resize it
	VerbTerminate Verb = "terminate" // end it, signal it, forget it
)

// Access is something that a principal wants to do.
type Access struct {
	Principal Principal
	Verb      Verb
	SessionID string            // "" for all, and for a session that is given its id later
	Labels    map[string]string // the session's, or those that it would have
	Argv      []string          // of spawn: what would be started
	WorkDir   string            // of spawn; "" is the home directory
}

// The kinds of events. Unknown kinds are to be ignored.
const (
	EventHello      = "hello"      // a client was let in
	EventRefused    = "refused"    // a client, or what it asked for; Code says why
	EventSpawned    = "spawned"    // a session was started, or started again
	EventAttached   = "attached"   // a client looks at it
	EventDetached   = "detached"   // it does no more
	EventTerminated = "terminated" // somebody asked for its end
	EventExited     = "exited"     // it has ended; ExitCode says how
)

// An Event is something that happened.
type Event struct {
	At        time.Time
	Kind      string
	Principal Principal // nobody, of exited
	SessionID string
	Labels    map[string]string // the session's, where they are known
	Verb      Verb              // of refused, where one was asked for
	Code      string            // of refused
	ExitCode  int               // of exited
}
