// Package api holds the control messages between a client and a proxy.
//
// A connection begins with Hello and Welcome. Then the client sends requests,
// each answered by one message with the same request_id, and any number of
// attachments share the connection, each under the number the client gave it.
//
// Invariant: Messages lists every message there is; schema.json and SPEC.md
// say the same, and a test compares the three.
//
// Not here: connections (packages proxy/client and proxy/internal/apiserver).
package api

import (
	"time"

	"holdfast/protocol"
)

// Subprotocol is the WebSocket subprotocol of these messages.
const Subprotocol = "holdfast.v1"

// Messages is every control message of the api.
var Messages = protocol.NewRegistry(
	Hello{}, Welcome{}, Error{}, OK{}, Goaway{},
	Spawn{}, Reopen{}, Spawned{}, List{}, Sessions{}, Info{}, Session{},
	Scrollback{}, ScrollbackData{}, Screen{}, ScreenContent{},
	History{}, HistoryContent{}, Search{}, SearchContent{}, SizePolicy{}, Appearance{}, Rename{},
	Attach{}, Attached{}, Detach{}, Detached{}, Resize{}, Interrupt{}, Signal{}, Terminate{}, Forget{}, Wait{}, Waited{},
	Limit{}, Freeze{}, Mark{}, Marked{}, Await{}, Awaited{}, Environment{}, EnvironmentContent{}, Away{}, AwayContent{}, Share{}, Shared{}, Typed{},
	Clear{}, Input{}, Accepted{}, Resync{}, Resized{}, Stolen{}, PTYExited{}, Exit{},
	Events{}, Subscribed{}, Event{}, Status{}, StatusReport{}, Ticket{}, TicketIssued{},
	TerminalOpen{}, TerminalOpened{}, TerminalData{}, TerminalResize{}, TerminalClose{}, TerminalExit{}, TerminalError{},
)

// Hello is the first message of a connection, from the client.
type Hello struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	Client       string                `json:"client"`           // a name for people and logs, 1 to 256 bytes
	PID          int                   `json:"pid,omitempty"`    // of the client
	Token        string                `json:"token,omitempty"`  // on TCP
	Secret       string                `json:"secret,omitempty"` // where the proxy wants one
}

// Welcome answers Hello.
type Welcome struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Agreed       int                   `json:"agreed"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	PID          int                   `json:"pid"`
	Version      string                `json:"version"`
	Instance     protocol.Instance     `json:"instance"`
}

// Error answers a request that failed. With an attachment's number it ends
// that attachment, unless its code is input_full, input_gap, line_too_long or
// permission_denied. Without either it answers a request that had no id, or is
// the last message before the connection is closed.
type Error struct {
	protocol.Request
	Attachment *uint32 `json:"attachment,omitempty"`
	protocol.Error
}

// OK answers a request that has nothing to say.
type OK struct {
	protocol.Request
}

// Goaway tells that the proxy is about to close the connection, and when to
// come back; attachments resume by offset.
type Goaway struct {
	RetryAfterMS int64  `json:"retry_after_ms"`
	Reason       string `json:"reason"`
}

// Spawn starts a session and checks that it lives. It is answered by Spawned,
// or by exited_early with the exit record.
type Spawn struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id,omitempty"` // "" makes one
	protocol.SpawnSpec
	EarlyExitMS *int64 `json:"early_exit_ms,omitempty"` // how long to watch; absent is 200, 0 does not
	// Token, where given, makes Spawn repeatable after a lost connection: if
	// the session exists and was made with the same token, it is the answer.
	Token string `json:"token,omitempty"`
	// ShellIntegration has a shell (bash, zsh, fish) tell of its prompts and commands,
	// by OSC 133. No file of the user's is changed. Other programs are started as they are.
	ShellIntegration bool `json:"shell_integration,omitempty"`
}

// Reopen starts an exited session again under its id, as a new instance.
// Fields that are absent are as they were. It is answered like Spawn.
type Reopen struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	protocol.RespawnSpec
	EarlyExitMS *int64 `json:"early_exit_ms,omitempty"`
	Token       string `json:"token,omitempty"`
}

// Spawned answers Spawn and Reopen.
type Spawned struct {
	protocol.Request
	SessionID protocol.SessionID   `json:"session_id"`
	PID       int                  `json:"pid"`
	CreatedAt time.Time            `json:"created_at"`
	Session   protocol.SessionInfo `json:"session"`
}

// List asks for all sessions, or those of one originator. It is answered by
// Sessions.
type List struct {
	protocol.Request
	Originator string            `json:"originator,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"` // those that have all of these
}

// Sessions answers List, in as many messages as it takes: the last has no More.
type Sessions struct {
	protocol.Request
	Sessions []protocol.SessionInfo `json:"sessions"`
	More     bool                   `json:"more,omitempty"`
}

// Info asks for one session. It is answered by Session.
type Info struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// Session is one session.
type Session struct {
	protocol.Request
	Session protocol.SessionInfo `json:"session"`
}

// Scrollback asks for the bytes a session printed, from an offset on, as far
// as they are kept. It is answered by ScrollbackData.
type Scrollback struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Offset    uint64             `json:"offset,omitempty"`
	MaxBytes  int                `json:"max_bytes,omitempty"` // at most and by default 512 KiB
}

// ScrollbackData is bytes a session printed.
type ScrollbackData struct {
	protocol.Request
	Instance protocol.Instance `json:"instance"`
	Offset   uint64            `json:"offset"`   // of the first byte; later than asked where the ring forgot
	End      uint64            `json:"end"`      // bytes printed so far
	Data     []byte            `json:"data_b64"` // base64
}

// Screen asks what a session's screen shows, also after its end. It is answered
// by ScreenContent.
type Screen struct {
	protocol.Request
	protocol.ScreenSpec
}

// ScreenContent is a session's screen, or its last lines.
type ScreenContent struct {
	protocol.Request
	protocol.ScreenContent
}

// History asks for lines of a session, the newest first. It is answered by
// HistoryContent.
type History struct {
	protocol.Request
	protocol.HistorySpec
}

// HistoryContent is lines of a session, the newest first.
type HistoryContent struct {
	protocol.Request
	protocol.HistoryContent
}

// Search asks for lines that match. It is answered by SearchContent.
type Search struct {
	protocol.Request
	protocol.SearchSpec
}

// SearchContent is lines that match, the newest first.
type SearchContent struct {
	protocol.Request
	protocol.SearchContent
}

// SizePolicy changes whose size a session has. It is answered by OK.
type SizePolicy struct {
	protocol.Request
	SessionID protocol.SessionID  `json:"session_id"`
	Policy    protocol.SizePolicy `json:"policy"`
	Cols      int                 `json:"cols,omitempty"` // of fixed: 0 leaves it as it is
	Rows      int                 `json:"rows,omitempty"`
}

// Clear forgets the lines above a session's screen, for all viewers. It is answered by OK.
type Clear struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Screen    bool               `json:"screen,omitempty"` // the screen's, too, but the row with the cursor, which moves to the top
}

// Rename says what a session is called, in its label title, for all who see it; an
// empty title takes that away. It is answered by Session.
type Rename struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Title     string             `json:"title"` // at most MaxTitle bytes
}

// Appearance says that a viewer's terminal looks otherwise now.
type Appearance struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
	protocol.Appearance
}

// Attach asks for a view of a session under a number of the client's choice.
// It is answered by Attached.
type Attach struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
	protocol.AttachSpec
	Text bool `json:"text,omitempty"` // output as terminal.data instead of binary frames
}

// Attached answers Attach. Snapshot frames follow, then output.
type Attached struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
	protocol.AttachInfo
}

// Detach ends an attachment; the session lives on. It is answered by Detached,
// also where there was no such attachment.
type Detach struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
}

// Detached answers Detach: nothing more comes for this number.
type Detached struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
}

// Resize changes a session's size. With an attachment's number it is that
// viewer's size; else it names the session and is answered by OK.
type Resize struct {
	protocol.Request
	Attachment *uint32            `json:"attachment,omitempty"`
	SessionID  protocol.SessionID `json:"session_id,omitempty"`
	Cols       int                `json:"cols"`
	Rows       int                `json:"rows"`
}

// Interrupt sends SIGINT to the foreground process group of an attachment's
// session, or of the session named (then it is answered by OK).
type Interrupt struct {
	protocol.Request
	Attachment *uint32            `json:"attachment,omitempty"`
	SessionID  protocol.SessionID `json:"session_id,omitempty"`
}

// Signal sends a signal to the process groups of a session and nothing else.
// It is answered by OK.
type Signal struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Signal    string             `json:"signal"` // "SIGUSR1", "USR1" or a number
}

// Terminate ends a session: the soft signal, the grace, SIGKILL. It is
// answered by OK when the end has been scheduled.
type Terminate struct {
	protocol.Request
	SessionID  protocol.SessionID `json:"session_id"`
	GraceMS    *int64             `json:"grace_ms,omitempty"`    // absent is 250
	SoftSignal string             `json:"soft_signal,omitempty"` // "" is SIGHUP
	Reason     protocol.Reason    `json:"reason,omitempty"`      // "" is user_requested
	// All ends every process of the session's cage, also those that have left the
	// terminal, and also after the session has exited. Without a cage it is unsupported.
	All bool `json:"all,omitempty"`
}

// Limit changes limits of a session that runs, and leaves the others. It is answered
// by Session, or by unsupported if the session has no cage.
type Limit struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Limits    protocol.Limits    `json:"limits"`
}

// Freeze stops all processes of a session, or has them run on. It is answered by OK,
// also if that is so already, or by unsupported if the session has no cage.
type Freeze struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Frozen    bool               `json:"frozen"` // false thaws
}

// Forget removes an exited session. It is answered by OK.
type Forget struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Restore   bool               `json:"restore,omitempty"`  // it has failed: the life in whose place it came a moment ago is there again
}

// Wait asks for a session's end. It is answered by Waited, or by timeout.
type Wait struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"`   // where given, of this life only
	TimeoutMS *int64             `json:"timeout_ms,omitempty"` // absent waits for ever
}

// Waited answers Wait.
type Waited struct {
	protocol.Request
	SessionID protocol.SessionID  `json:"session_id"`
	Instance  protocol.Instance   `json:"instance"`
	Exit      protocol.ExitRecord `json:"exit"`
}

// Input types into a session without an attachment. It is answered by
// Accepted, or by input_full with the offset up to which it was taken.
type Input struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Data      []byte             `json:"data_b64"`
	Writer    string             `json:"writer,omitempty"` // with Offset: exactly once
	Offset    uint64             `json:"offset,omitempty"`
	// Paste says that Data is text which was not typed key by key: line ends are sent
	// as Enter is, and where the program asked for it (mode 2004) it is framed.
	Paste bool `json:"paste,omitempty"`
	// Keys, in place of Data, are keys by name, sent as the terminal's modes have it:
	// Enter, Tab, Escape, Space, Backspace, Up, Down, Left, Right, Home, End, Insert,
	// Delete, PageUp, PageDown, F1 to F12, or one character; before it any of C-, M-
	// and S-. They count as one byte of input each.
	Keys []string `json:"keys,omitempty"`
}

// Mark asks where a session is now. It is answered by Marked.
type Mark struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// Marked answers Mark.
type Marked struct {
	protocol.Request
	protocol.MarkInfo
}

// Await waits for something on a session's screen. It is answered by Awaited, or by
// timeout.
type Await struct {
	protocol.Request
	protocol.AwaitSpec
	TimeoutMS *int64 `json:"timeout_ms,omitempty"` // absent waits for ever
}

// Awaited answers Await.
type Awaited struct {
	protocol.Request
	protocol.AwaitedInfo
}

// Environment asks for the environment of the last viewer that told its own. It is
// answered by EnvironmentContent.
type Environment struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// EnvironmentContent is a viewer's environment.
type EnvironmentContent struct {
	protocol.Request
	Env []string `json:"env"` // K=V
}

// Share asks for a link by which a browser can look at one session, and do nothing
// else. It is answered by Shared.
type Share struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	TTLMS     int64              `json:"ttl_ms,omitempty"` // how long it is good for; 0 is an hour, at most 30 days
}

// Shared answers Share.
type Shared struct {
	protocol.Request
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Away asks what has happened in a session since its last viewer went. It is answered
// by AwayContent.
type Away struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// AwayContent is what has happened meanwhile.
type AwayContent struct {
	protocol.Request
	protocol.AwayInfo
}

// Typed tells an attachment that asked for it what was typed.
type Typed struct {
	Attachment uint32    `json:"attachment"`
	At         time.Time `json:"at"`
	Offset     uint64    `json:"offset"` // of output: what had been printed by then
	Data       []byte    `json:"data_b64"`
	Masked     bool      `json:"masked,omitempty"` // the terminal does not show it: an asterisk stands for each character
}

// Accepted says how far a writer's input has been accepted: of an attachment
// as it goes on, or in answer to Input.
type Accepted struct {
	protocol.Request
	Attachment *uint32 `json:"attachment,omitempty"`
	Offset     uint64  `json:"offset"`
}

// Resync tells a viewer that was too slow: bytes were skipped, a snapshot
// follows, then output from Offset on.
type Resync struct {
	Attachment    uint32 `json:"attachment"`
	Offset        uint64 `json:"offset"`
	BytesMissed   uint64 `json:"bytes_missed"`
	SnapshotBytes int    `json:"snapshot_bytes"`
	View          bool   `json:"view,omitempty"`        // a view of the viewer's own begins
	ScreenOnly    bool   `json:"screen_only,omitempty"` // the snapshot has no lines above the screen: those it has are kept
}

// Resized tells a viewer the session's new size.
type Resized struct {
	Attachment uint32 `json:"attachment"`
	Cols       int    `json:"cols"`
	Rows       int    `json:"rows"`
}

// Stolen ends an attachment in whose place another has come.
type Stolen struct {
	Attachment uint32 `json:"attachment"`
	StolenBy   string `json:"stolen_by"`
}

// PTYExited tells a session's end: to a subscriber as an event, with Seq; to
// an attachment as its last message, with its number.
type PTYExited struct {
	SessionID          protocol.SessionID `json:"session_id"`
	PaneID             string             `json:"pane_id"` // the label pane_id, or else the session's id
	ExitCode           int                `json:"exit_code"`
	LastLines          []string           `json:"last_lines"` // the last 5 that are not empty
	SessionTitle       string             `json:"session_title"`
	SessionDescription string             `json:"session_description"`
	ParentAgent        *string            `json:"parent_agent,omitempty"`
	TimedOut           bool               `json:"timed_out"`
	Reason             protocol.Reason    `json:"reason,omitempty"`
	Signal             string             `json:"signal,omitempty"`
	Outcome            protocol.Outcome   `json:"outcome,omitempty"`
	Instance           protocol.Instance  `json:"instance,omitempty"`
	Attachment         *uint32            `json:"attachment,omitempty"`
	Seq                uint64             `json:"seq,omitempty"`
}

// Exit is what older proxies sent in place of PTYExited. Clients understand
// it; a proxy of this version never sends it.
type Exit struct {
	Code int `json:"code"`
}

// Events asks for what happens, after the event with number After of this
// supervisor's life where given. It is answered by Subscribed; then Event and
// PTYExited follow, until the connection ends.
type Events struct {
	protocol.Request
	Instance protocol.Instance `json:"instance,omitempty"`
	After    uint64            `json:"after,omitempty"`
}

// Subscribed answers Events.
type Subscribed struct {
	protocol.Request
	Instance protocol.Instance `json:"instance"` // the supervisor's
	Seq      uint64            `json:"seq"`      // the next event's number is greater
}

// Event is something that happened. The end of a session comes as PTYExited.
type Event struct {
	Seq     uint64                `json:"seq"`
	Event   protocol.EventKind    `json:"event"`
	At      time.Time             `json:"at"`
	Session *protocol.SessionInfo `json:"session,omitempty"`
	Missed  uint64                `json:"missed,omitempty"` // of event "missed"

	Notification *protocol.Notification `json:"notification,omitempty"` // of event "notification"
}

// Status asks for the state of both processes. It is answered by StatusReport.
type Status struct {
	protocol.Request
}

// StatusReport is the state of both processes.
type StatusReport struct {
	protocol.Request
	Proxy      protocol.ProcessStatus  `json:"proxy"`
	Supervisor *protocol.ProcessStatus `json:"supervisor,omitempty"` // absent where it cannot be reached
	Web        string                  `json:"web,omitempty"`        // where the proxy serves WebSockets over TCP, if it does
}

// Ticket asks for a one-time ticket for a WebSocket over TCP. It is answered
// by TicketIssued.
type Ticket struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id,omitempty"` // where given, for this session's raw WebSocket alone
}

// TicketIssued is a ticket, good for one connection.
type TicketIssued struct {
	protocol.Request
	Ticket    string    `json:"ticket"`
	ExpiresAt time.Time `json:"expires_at"`
}

// TerminalOpen starts a session for a task and attaches to it as text. It is
// answered by TerminalOpened or TerminalError.
type TerminalOpen struct {
	protocol.Request
	TaskID      string `json:"task_id"`
	WorkspaceID string `json:"workspace_id"`
	UserID      string `json:"user_id,omitempty"`
	Cols        int    `json:"cols,omitempty"`
	Rows        int    `json:"rows,omitempty"`
}

// TerminalOpened answers TerminalOpen.
type TerminalOpened struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	WorkDir   string             `json:"work_dir"`
	Shell     string             `json:"shell"`
}

// TerminalData is output to, or input from, a text client.
type TerminalData struct {
	SessionID protocol.SessionID `json:"session_id"`
	Data      []byte             `json:"data_b64"`
}

// TerminalResize is the size of a text client's view.
type TerminalResize struct {
	SessionID protocol.SessionID `json:"session_id"`
	Cols      int                `json:"cols"`
	Rows      int                `json:"rows"`
}

// TerminalClose ends a session.
type TerminalClose struct {
	SessionID protocol.SessionID `json:"session_id"`
	Reason    protocol.Reason    `json:"reason,omitempty"`
}

// TerminalExit tells a session's end to a client whose hello asked for it, in
// place of PTYExited.
type TerminalExit struct {
	SessionID  protocol.SessionID `json:"session_id"`
	ExitCode   int                `json:"exit_code"`
	Reason     protocol.Reason    `json:"reason,omitempty"`
	Attachment *uint32            `json:"attachment,omitempty"`
	Seq        uint64             `json:"seq,omitempty"`
}

// TerminalError answers a terminal message that failed.
type TerminalError struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id,omitempty"`
	Code      protocol.Code      `json:"code"`
	Message   string             `json:"message"`
	Cause     protocol.Code      `json:"cause,omitempty"`
}

// MessageType implements protocol.Message.
func (Hello) MessageType() string              { return "hello" }
func (Welcome) MessageType() string            { return "welcome" }
func (Error) MessageType() string              { return "error" }
func (OK) MessageType() string                 { return "ok" }
func (Goaway) MessageType() string             { return "goaway" }
func (Spawn) MessageType() string              { return "spawn" }
func (Reopen) MessageType() string             { return "reopen" }
func (Spawned) MessageType() string            { return "spawned" }
func (List) MessageType() string               { return "list" }
func (Sessions) MessageType() string           { return "sessions" }
func (Info) MessageType() string               { return "info" }
func (Session) MessageType() string            { return "session" }
func (Scrollback) MessageType() string         { return "scrollback" }
func (ScrollbackData) MessageType() string     { return "scrollback_data" }
func (Screen) MessageType() string             { return "screen" }
func (ScreenContent) MessageType() string      { return "screen_content" }
func (History) MessageType() string            { return "history" }
func (HistoryContent) MessageType() string     { return "history_content" }
func (Search) MessageType() string             { return "search" }
func (SearchContent) MessageType() string      { return "search_content" }
func (SizePolicy) MessageType() string         { return "size_policy" }
func (Rename) MessageType() string             { return "rename" }
func (Clear) MessageType() string              { return "clear" }
func (Appearance) MessageType() string         { return "appearance" }
func (Attach) MessageType() string             { return "attach" }
func (Attached) MessageType() string           { return "attached" }
func (Detach) MessageType() string             { return "detach" }
func (Detached) MessageType() string           { return "detached" }
func (Resize) MessageType() string             { return "resize" }
func (Interrupt) MessageType() string          { return "interrupt" }
func (Signal) MessageType() string             { return "signal" }
func (Terminate) MessageType() string          { return "terminate" }
func (Limit) MessageType() string              { return "limit" }
func (Freeze) MessageType() string             { return "freeze" }
func (Forget) MessageType() string             { return "forget" }
func (Wait) MessageType() string               { return "wait" }
func (Waited) MessageType() string             { return "waited" }
func (Input) MessageType() string              { return "input" }
func (Accepted) MessageType() string           { return "accepted" }
func (Resync) MessageType() string             { return "resync" }
func (Resized) MessageType() string            { return "resized" }
func (Stolen) MessageType() string             { return "stolen" }
func (PTYExited) MessageType() string          { return "pty_exited" }
func (Exit) MessageType() string               { return "exit" }
func (Mark) MessageType() string               { return "mark" }
func (Marked) MessageType() string             { return "marked" }
func (Await) MessageType() string              { return "await" }
func (Awaited) MessageType() string            { return "awaited" }
func (Environment) MessageType() string        { return "environment" }
func (EnvironmentContent) MessageType() string { return "environment_content" }
func (Share) MessageType() string              { return "share" }
func (Shared) MessageType() string             { return "shared" }
func (Away) MessageType() string               { return "away" }
func (AwayContent) MessageType() string        { return "away_content" }
func (Typed) MessageType() string              { return "typed" }
func (Events) MessageType() string             { return "events" }
func (Subscribed) MessageType() string         { return "subscribed" }
func (Event) MessageType() string              { return "event" }
func (Status) MessageType() string             { return "status" }
func (StatusReport) MessageType() string       { return "status_report" }
func (Ticket) MessageType() string             { return "ticket" }
func (TicketIssued) MessageType() string       { return "ticket_issued" }
func (TerminalOpen) MessageType() string       { return "terminal.open" }
func (TerminalOpened) MessageType() string     { return "terminal.opened" }
func (TerminalData) MessageType() string       { return "terminal.data" }
func (TerminalResize) MessageType() string     { return "terminal.resize" }
func (TerminalClose) MessageType() string      { return "terminal.close" }
func (TerminalExit) MessageType() string       { return "terminal.exit" }
func (TerminalError) MessageType() string      { return "terminal.error" }
