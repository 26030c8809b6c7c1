// Package api contains the control messages between a client and a proxy.
//
// A connection begins with Hello and Welcome. The client then sends requests. The reply to a
// request has the same request_id. A connection may carry several attachments, and the client
// gives each a number.
//
// Invariant: Messages contains every message. schema.json and SPEC.md must describe the same
// messages; a test compares them.
//
// Not here: connections (packages proxy/client and proxy/internal/apiserver).
package api

import (
	"slices"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/link"
)

// Subprotocol is the WebSocket subprotocol of these messages.
const Subprotocol = "holdfast.v1"

// Messages contains all control messages of the api.
var Messages = protocol.NewRegistry(requestsWithRepeat,
	Vouch{}, Hello{}, Welcome{}, Error{}, Goaway{},
	Resync{}, Resized{}, Typed{}, Stolen{}, PTYExited{}, Event{},
	TerminalExit{}, TerminalError{},
)

// requests contains one row for each message that a client may send after Hello.
var requests = []protocol.RequestKind{
	{Message: Spawn{}, Reply: Spawned{}, Link: link.Create{}},
	{Message: Reopen{}, Reply: Spawned{}, Link: link.Reopen{}, IsAboutSession: true},
	{Message: List{}, Reply: Sessions{}, Link: link.List{}, IsForShares: true},
	{Message: Info{}, Reply: Session{}, Link: link.Info{}, IsAboutSession: true, IsForShares: true},
	{Message: Scrollback{}, Reply: ScrollbackData{}, Link: link.Read{}, IsAboutSession: true, IsForShares: true},
	{Message: Screen{}, Reply: ScreenContent{}, Link: link.Screen{}, IsAboutSession: true, IsForShares: true},
	{Message: History{}, Reply: HistoryContent{}, Link: link.History{}, IsAboutSession: true, IsForShares: true},
	{Message: Changes{}, Reply: ChangesContent{}, Link: link.Changes{}, IsAboutSession: true},
	{Message: Commands{}, Reply: CommandsContent{}, Link: link.Commands{}, IsAboutSession: true},
	{Message: Search{}, Reply: SearchContent{}, Link: link.Search{}, IsAboutSession: true, IsForShares: true},
	{Message: Past{}, Reply: PastContent{}, Link: link.Past{}, IsAboutSession: true},
	{Message: SearchPast{}, Reply: SearchPastContent{}, Link: link.SearchPast{}, IsAboutSession: true},
	{Message: SizePolicy{}, Reply: OK{}, Link: link.SizePolicy{}, IsAboutSession: true},
	{Message: Clear{}, Reply: OK{}, Link: link.Clear{}, IsAboutSession: true},
	{Message: Rename{}, Reply: Session{}, Link: link.Relabel{}, IsAboutSession: true},
	{Message: Limit{}, Reply: Session{}, Link: link.Limit{}, IsAboutSession: true},
	{Message: Freeze{}, Reply: OK{}, Link: link.Freeze{}, IsAboutSession: true},
	{Message: Resize{}, Reply: OK{}, Link: link.Resize{}, IsAboutSession: true, IsForShares: true},
	{Message: Interrupt{}, Reply: OK{}, Link: link.Interrupt{}, IsAboutSession: true},
	{Message: Signal{}, Reply: OK{}, Link: link.Signal{}, IsAboutSession: true},
	{Message: Wait{}, Reply: Waited{}, Link: link.Wait{}, IsAboutSession: true, IsLong: true},
	{Message: Input{}, Reply: Accepted{}, Link: link.Write{}, IsAboutSession: true},
	{Message: Mark{}, Reply: Marked{}, Link: link.Mark{}, IsAboutSession: true},
	{Message: Await{}, Reply: Awaited{}, Link: link.Await{}, IsAboutSession: true, IsLong: true},
	{Message: Environment{}, Reply: EnvironmentContent{}, Link: link.Environment{}, IsAboutSession: true},
	{Message: Away{}, Reply: AwayContent{}, Link: link.Away{}, IsAboutSession: true},
	{Message: Share{}, Reply: Shared{}, Repeat: protocol.RepeatRead, IsAboutSession: true}, // the proxy stores no links
	{Message: Status{}, Reply: StatusReport{}, Link: link.Status{}},
	{Message: Ticket{}, Reply: TicketIssued{}, Repeat: protocol.RepeatSet}, // a ticket that nobody receives expires
	{Message: Ping{}, Reply: OK{}, Repeat: protocol.RepeatRead, IsForShares: true},

	// A client cannot name the instance that it means in Terminate, and it cannot tell the error of
	// a second Forget from the error of a first one. The proxy can do both on the link.
	{Message: Terminate{}, Reply: OK{}, Link: link.Terminate{}, Repeat: protocol.RepeatNever, IsAboutSession: true},
	{Message: Forget{}, Reply: OK{}, Link: link.Forget{}, Repeat: protocol.RepeatNever, IsAboutSession: true},

	// These requests change the state of their connection, which ends with it. A client makes a new
	// attachment or subscription, with its position, on its next connection.
	{Message: Attach{}, Reply: Attached{}, Link: link.Attach{}, Repeat: protocol.RepeatNever, IsAboutSession: true, IsForShares: true},
	{Message: Detach{}, Reply: Detached{}, Repeat: protocol.RepeatNever, IsForShares: true},
	{Message: Appearance{}, Reply: OK{}, Repeat: protocol.RepeatNever},
	{Message: Events{}, Reply: Subscribed{}, Link: link.Events{}, Repeat: protocol.RepeatNever, IsForShares: true},
	{Message: TerminalOpen{}, Reply: TerminalOpened{}, Link: link.Create{}, Repeat: protocol.RepeatNever},
	{Message: TerminalData{}, Repeat: protocol.RepeatNever, IsAboutSession: true},
	{Message: TerminalResize{}, Repeat: protocol.RepeatNever, IsAboutSession: true},
	{Message: TerminalClose{}, Link: link.Terminate{}, Repeat: protocol.RepeatNever, IsAboutSession: true},
}

// requestsWithRepeat returns the rows. The Repeat of each row that has none is that of its link's request.
func requestsWithRepeat() []protocol.RequestKind {
	rows := slices.Clone(requests)
	for i, k := range rows {
		if k.Repeat == "" && k.Link != nil {
			on, _ := link.Messages.Request(k.Link.MessageType())
			rows[i].Repeat = on.Repeat
		}
	}
	return rows
}

// Hello is the first message of a connection. The client sends it.
type Hello struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	Client       string                `json:"client"`           // name of the client for people and logs, 1 to 256 bytes
	PID          int                   `json:"pid,omitempty"`    // process id of the client
	Token        string                `json:"token,omitempty"`  // required over TCP
	Secret       string                `json:"secret,omitempty"` // required if the proxy has a secret
}

// Vouch precedes Hello. The agent of a host sends it for a client of a gate that has a policy: the gate has
// established who the client is. It has no reply. A proxy of an older release refuses the connection.
type Vouch struct {
	Token     string             `json:"token"` // of the proxy, which proves that the agent runs as its user
	Principal protocol.Principal `json:"principal"`
}

// Welcome is the reply to Hello.
type Welcome struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Agreed       int                   `json:"agreed"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	PID          int                   `json:"pid"`
	Version      string                `json:"version"`
	Instance     protocol.Instance     `json:"instance"`
}

// Error is the reply to a request that failed. If it has the number of an attachment, it ends the
// attachment, unless its code is input_full, input_gap, line_too_long or permission_denied. If it
// has neither an id nor a number, the failed request had no id, or the error is the last message
// before the proxy closes the connection.
type Error struct {
	protocol.Request
	Attachment *uint32 `json:"attachment,omitempty"`
	protocol.Error
}

// OK is the reply to a request that succeeded and has no result.
type OK struct {
	protocol.Request
}

// Goaway announces that the proxy is about to close the connection. The client should connect again
// after RetryAfterMS, and its attachments resume by offset.
type Goaway struct {
	RetryAfterMS int64  `json:"retry_after_ms"`
	Reason       string `json:"reason"`
}

// Spawn starts a session and checks that its child does not end at once. The reply is Spawned, or
// exited_early with the exit record.
type Spawn struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id,omitempty"` // "": Holdfast chooses one
	protocol.SpawnSpec
	EarlyExitMS *int64 `json:"early_exit_ms,omitempty"` // duration of the check; in milliseconds; absent: 200; 0: no check
	// Token makes Spawn repeatable after a lost connection, if it is set: if the session exists
	// and was created with the same token, the reply describes it.
	Token string `json:"token,omitempty"`
	// ShellIntegration makes a shell (bash, zsh, fish) report its prompts and commands by OSC
	// 133. It changes no file of the user. It has no effect on other programs.
	ShellIntegration bool `json:"shell_integration,omitempty"`
}

// Reopen starts an exited session again under its id, as a new instance. Absent fields keep their
// values. The reply is that of Spawn.
type Reopen struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	protocol.RespawnSpec
	EarlyExitMS *int64 `json:"early_exit_ms,omitempty"`
	Token       string `json:"token,omitempty"`
}

// Spawned is the reply to Spawn and Reopen.
type Spawned struct {
	protocol.Request
	SessionID protocol.SessionID   `json:"session_id"`
	PID       int                  `json:"pid"`
	CreatedAt time.Time            `json:"created_at"`
	Session   protocol.SessionInfo `json:"session"`
}

// List requests all sessions, or those of one originator. The reply is
// Sessions.
type List struct {
	protocol.Request
	Originator string            `json:"originator,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"` // only sessions that have all of these labels
}

// Sessions is the reply to List. If More is set, another Sessions with more sessions follows.
type Sessions struct {
	protocol.Request
	Sessions []protocol.SessionInfo `json:"sessions"`
	More     bool                   `json:"more,omitempty"`
}

// Info requests the description of one session. The reply is Session.
type Info struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// Session describes one session.
type Session struct {
	protocol.Request
	Session protocol.SessionInfo `json:"session"`
}

// Scrollback requests output of a session from an offset on, as far as it is kept. The reply is
// ScrollbackData.
type Scrollback struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Offset    uint64             `json:"offset,omitempty"`
	MaxBytes  int                `json:"max_bytes,omitempty"` // largest size of the reply's data; default and maximum 512 KiB
	Past      bool               `json:"past,omitempty"`      // also output that only the store has; the reply then has times and sizes
}

// ScrollbackData contains output of a session.
type ScrollbackData struct {
	protocol.Request
	Instance protocol.Instance   `json:"instance"`
	Offset   uint64              `json:"offset"`          // offset of the first byte; later than requested if the ring no longer has the bytes before
	End      uint64              `json:"end"`             // number of bytes of output so far
	Data     []byte              `json:"data_b64"`        // base64
	Times    []protocol.PastTime `json:"times,omitempty"` // if the request has past: when the data was printed
	Sizes    []protocol.PastSize `json:"sizes,omitempty"` // if the request has past: the size of the terminal at Offset, and its changes up to the end of the data
}

// Screen requests a session's screen, also after the session has ended, or the screen at an
// earlier moment. The reply is ScreenContent.
type Screen struct {
	protocol.Request
	protocol.ScreenSpec
}

// ScreenContent contains a session's screen, or its last lines.
type ScreenContent struct {
	protocol.Request
	protocol.ScreenContent
}

// History requests lines of a session, the newest first. The reply is
// HistoryContent.
type History struct {
	protocol.Request
	protocol.HistorySpec
}

// HistoryContent contains lines of a session, the newest first.
type HistoryContent struct {
	protocol.Request
	protocol.HistoryContent
}

// Changes requests the least text that brings a reader of a session up to date. The reply is
// ChangesContent.
type Changes struct {
	protocol.Request
	protocol.ChangesSpec
}

// ChangesContent contains the changes since a mark.
type ChangesContent struct {
	protocol.Request
	protocol.ChangesContent
}

// Commands requests the commands of a session that have ended. The reply is CommandsContent.
type Commands struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// CommandsContent contains the commands that have ended, the oldest first.
type CommandsContent struct {
	protocol.Request
	protocol.CommandsContent
}

// Search requests the lines that match a pattern. The reply is SearchContent.
type Search struct {
	protocol.Request
	protocol.SearchSpec
}

// SearchContent contains the lines that match, the newest first.
type SearchContent struct {
	protocol.Request
	protocol.SearchContent
}

// Past requests a description of a session's past: the stored range, times, gaps and commands.
// The reply is PastContent.
type Past struct {
	protocol.Request
	protocol.PastSpec
}

// PastContent describes the past of a session.
type PastContent struct {
	protocol.Request
	protocol.PastContent
}

// SearchPast requests the lines of a session's past that match a pattern. The reply is
// SearchPastContent.
type SearchPast struct {
	protocol.Request
	protocol.PastSearchSpec
}

// SearchPastContent contains the lines that match, the newest first.
type SearchPastContent struct {
	protocol.Request
	protocol.PastSearchContent
}

// SizePolicy changes the size policy of a session. The reply is OK.
type SizePolicy struct {
	protocol.Request
	SessionID protocol.SessionID  `json:"session_id"`
	Policy    protocol.SizePolicy `json:"policy"`
	Cols      int                 `json:"cols,omitempty"` // for policy fixed; 0: leave the size unchanged
	Rows      int                 `json:"rows,omitempty"`
}

// Clear deletes the lines above a session's screen, for all viewers. The reply is OK.
type Clear struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Screen    bool               `json:"screen,omitempty"` // delete the screen's rows as well, except the row with the cursor, which moves to the top
}

// Rename sets the title of a session, its label title, for all clients. An empty title removes the
// label. The reply is Session.
type Rename struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Title     string             `json:"title"` // at most MaxTitle bytes
}

// Appearance reports that the properties of a viewer's terminal have changed.
type Appearance struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
	protocol.Appearance
}

// Attach requests an attachment to a session. The client chooses the attachment's number, which
// must be unused on the connection. The reply is Attached.
type Attach struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
	protocol.AttachSpec
	Text bool `json:"text,omitempty"` // send output as terminal.data instead of binary frames
}

// Attached is the reply to Attach. The frames of the snapshot follow, if there is one, and then output.
type Attached struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
	protocol.AttachInfo
}

// Detach ends an attachment. The session continues. The reply is Detached, also if there is no such
// attachment.
type Detach struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
}

// Detached is the reply to Detach. No further message has the attachment's number.
type Detached struct {
	protocol.Request
	Attachment uint32 `json:"attachment"`
}

// Resize changes the size of a viewer, if it has the number of an attachment. Otherwise it changes
// the size of the session SessionID, and the reply is OK.
type Resize struct {
	protocol.Request
	Attachment *uint32            `json:"attachment,omitempty"`
	SessionID  protocol.SessionID `json:"session_id,omitempty"`
	Cols       int                `json:"cols"`
	Rows       int                `json:"rows"`
}

// Interrupt sends SIGINT to the foreground process group of a terminal. If it has no number of an
// attachment, it names the session, and the reply is OK.
type Interrupt struct {
	protocol.Request
	Attachment *uint32            `json:"attachment,omitempty"`
	SessionID  protocol.SessionID `json:"session_id,omitempty"`
}

// Signal sends a signal to the process groups of a session. It has no other effect. The
// reply is OK.
type Signal struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Signal    string             `json:"signal"` // "SIGUSR1", "USR1" or a number
}

// Terminate ends a session: the soft signal, the grace, and then SIGKILL. The reply is OK when the
// end has been scheduled.
type Terminate struct {
	protocol.Request
	SessionID  protocol.SessionID `json:"session_id"`
	Instance   protocol.Instance  `json:"instance,omitempty"`    // if set, the session must have this instance
	GraceMS    *int64             `json:"grace_ms,omitempty"`    // absent: 250
	SoftSignal string             `json:"soft_signal,omitempty"` // "": SIGHUP
	Reason     protocol.Reason    `json:"reason,omitempty"`      // "": user_requested
	// All ends every process of the session's cage, also processes without the terminal, and
	// also after the session has exited. Without a cage the error is unsupported.
	All bool `json:"all,omitempty"`
}

// Limit changes those limits of a running session that it contains. The reply is Session,
// or unsupported if the session has no cage.
type Limit struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Limits    protocol.Limits    `json:"limits"`
}

// Freeze stops all processes of a session, or continues them. The reply is OK, also if the
// session is in that state already, or unsupported if the session has no cage.
type Freeze struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Frozen    bool               `json:"frozen"` // false: continue the processes
}

// Forget deletes an exited session. The reply is OK.
type Forget struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Restore   bool               `json:"restore,omitempty"`  // the session has failed after Reopen: restore the instance that Reopen has just replaced
}

// Wait waits for the end of a session. The reply is Waited, or the error timeout.
type Wait struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"`   // if set, the session must have this instance
	TimeoutMS *int64             `json:"timeout_ms,omitempty"` // absent: no time limit
}

// Waited is the reply to Wait.
type Waited struct {
	protocol.Request
	SessionID protocol.SessionID  `json:"session_id"`
	Instance  protocol.Instance   `json:"instance"`
	Exit      protocol.ExitRecord `json:"exit"`
}

// Input sends input to a session without an attachment. The reply is Accepted, or input_full with the
// accepted input offset.
type Input struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	Data      []byte             `json:"data_b64"`
	Writer    string             `json:"writer,omitempty"` // writer of the input; with Offset, the input is accepted exactly once
	Offset    uint64             `json:"offset,omitempty"`
	// Paste declares that Data is pasted text. Line ends are then sent as Enter, and the text is
	// enclosed in paste marks if the program has set mode 2004.
	Paste bool `json:"paste,omitempty"`
	// Keys contains names of keys, instead of Data. They are sent as the modes of the terminal
	// require. A name is Enter, Tab, Escape, Space, Backspace, Up, Down, Left, Right, Home, End,
	// Insert, Delete, PageUp, PageDown, F1 to F12, or one character. The prefixes C-, M- and S- may
	// precede it. Each key counts as one byte of input.
	Keys []string `json:"keys,omitempty"`
	// HoldMS requires Writer. Until the writer's next input without it, or for that many milliseconds, the inputs of
	// other writers fail with input_full, so that none of them comes between a text and the keys after it.
	HoldMS int64 `json:"hold_ms,omitempty"`
}

// Mark requests a mark of the session's present position. The reply is Marked.
type Mark struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// Marked is the reply to Mark.
type Marked struct {
	protocol.Request
	protocol.MarkInfo
}

// Await waits for an event on a session's screen. The reply is Awaited, or the error
// timeout.
type Await struct {
	protocol.Request
	protocol.AwaitSpec
	TimeoutMS *int64 `json:"timeout_ms,omitempty"` // absent: no time limit
}

// Awaited is the reply to Await.
type Awaited struct {
	protocol.Request
	protocol.AwaitedInfo
}

// Environment requests the environment of the viewer that last sent one. The reply is
// EnvironmentContent.
type Environment struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// EnvironmentContent contains a viewer's environment.
type EnvironmentContent struct {
	protocol.Request
	Env []string `json:"env"` // K=V
}

// Share requests a URL with which a browser can view one session and do nothing else. The reply is
// Shared.
type Share struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	TTLMS     int64              `json:"ttl_ms,omitempty"` // validity of the URL; 0: one hour; at most 30 days
}

// Shared is the reply to Share.
type Shared struct {
	protocol.Request
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Away requests the events in a session since its last viewer left. The reply is
// AwayContent.
type Away struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
}

// AwayContent contains these events.
type AwayContent struct {
	protocol.Request
	protocol.AwayInfo
}

// Typed sends the input of all writers to an attachment that has requested it.
type Typed struct {
	Attachment uint32    `json:"attachment"`
	At         time.Time `json:"at"`
	Offset     uint64    `json:"offset"` // output offset when the input arrived
	Data       []byte    `json:"data_b64"`
	Masked     bool      `json:"masked,omitempty"` // the terminal does not echo the input, so each character is replaced by an asterisk
}

// Accepted reports the input offset up to which a writer's input was accepted. It is sent to an
// attachment from time to time, and is the reply to Input.
type Accepted struct {
	protocol.Request
	Attachment *uint32 `json:"attachment,omitempty"`
	Offset     uint64  `json:"offset"`
}

// Resync tells a viewer that it was too slow and that output was skipped. A snapshot follows, and then
// output from Offset on.
type Resync struct {
	Attachment    uint32 `json:"attachment"`
	Offset        uint64 `json:"offset"`
	BytesMissed   uint64 `json:"bytes_missed"`
	SnapshotBytes int    `json:"snapshot_bytes"`
	View          bool   `json:"view,omitempty"`        // the snapshot shows a view of the viewer's own
	ScreenOnly    bool   `json:"screen_only,omitempty"` // the snapshot has no lines above the screen, and the viewer must keep its own
}

// Resized reports the new size of the session to a viewer.
type Resized struct {
	Attachment uint32 `json:"attachment"`
	Cols       int    `json:"cols"`
	Rows       int    `json:"rows"`
}

// Stolen ends an attachment because another client has attached with steal.
type Stolen struct {
	Attachment uint32 `json:"attachment"`
	StolenBy   string `json:"stolen_by"`
	Detached   bool   `json:"detached,omitempty"` // the other client has only ended this attachment, and leaves
}

// PTYExited reports the end of a session. A subscriber receives it as an event, with Seq. An attachment
// receives it as its last message, with its number.
type PTYExited struct {
	SessionID          protocol.SessionID `json:"session_id"`
	PaneID             string             `json:"pane_id"` // the label pane_id, or the session's id if there is no such label
	ExitCode           int                `json:"exit_code"`
	LastLines          []string           `json:"last_lines"` // the last 5 lines that are not empty
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
	ExitedAt           time.Time          `json:"exited_at,omitzero"`
}

// Events requests events. If Instance and After are set and Instance is the supervisor's, the events
// begin after the event with number After. The reply is Subscribed. Event and PTYExited follow until
// the connection ends.
type Events struct {
	protocol.Request
	Instance protocol.Instance `json:"instance,omitempty"`
	After    uint64            `json:"after,omitempty"`
}

// Subscribed is the reply to Events.
type Subscribed struct {
	protocol.Request
	Instance protocol.Instance `json:"instance"` // instance of the supervisor
	Seq      uint64            `json:"seq"`      // number of the last event; the following events have greater numbers
}

// Event reports one event. The end of a session is reported by PTYExited instead.
type Event struct {
	Seq     uint64                `json:"seq"`
	Event   protocol.EventKind    `json:"event"`
	At      time.Time             `json:"at"`
	Session *protocol.SessionInfo `json:"session,omitempty"`
	Missed  uint64                `json:"missed,omitempty"` // for event "missed": number of dropped events

	Notification *protocol.Notification `json:"notification,omitempty"` // for event "notification"
}

// Status requests the status of the proxy and of the supervisor. The reply is StatusReport.
type Status struct {
	protocol.Request
}

// StatusReport contains the status of the proxy and of the supervisor.
type StatusReport struct {
	protocol.Request
	Proxy      protocol.ProcessStatus  `json:"proxy"`
	Supervisor *protocol.ProcessStatus `json:"supervisor,omitempty"` // absent if the supervisor is unreachable
	Web        string                  `json:"web,omitempty"`        // TCP address on which the proxy serves WebSockets, if it does
}

// Ping lets a client learn whether the other end of a silent connection still answers. The reply is OK.
type Ping struct {
	protocol.Request
}

// Ticket requests a ticket for one WebSocket over TCP. The reply is TicketIssued.
type Ticket struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id,omitempty"` // if set, the ticket is valid only for the raw WebSocket of this session
}

// TicketIssued contains a ticket, which is valid for one connection.
type TicketIssued struct {
	protocol.Request
	Ticket    string    `json:"ticket"`
	ExpiresAt time.Time `json:"expires_at"`
}

// TerminalOpen starts a session for a task and attaches to it with output as text. The reply is
// TerminalOpened or TerminalError.
type TerminalOpen struct {
	protocol.Request
	TaskID      string `json:"task_id"`
	WorkspaceID string `json:"workspace_id"`
	UserID      string `json:"user_id,omitempty"`
	Cols        int    `json:"cols,omitempty"`
	Rows        int    `json:"rows,omitempty"`
}

// TerminalOpened is the reply to TerminalOpen.
type TerminalOpened struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id"`
	WorkDir   string             `json:"work_dir"`
	Shell     string             `json:"shell"`
}

// TerminalData contains output for a text client, or input from it.
type TerminalData struct {
	SessionID protocol.SessionID `json:"session_id"`
	Data      []byte             `json:"data_b64"`
}

// TerminalResize contains the new size of a text client's view.
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

// TerminalExit reports the end of a session, instead of PTYExited, to a client that has announced
// CapTerminalExit.
type TerminalExit struct {
	SessionID  protocol.SessionID `json:"session_id"`
	ExitCode   int                `json:"exit_code"`
	Reason     protocol.Reason    `json:"reason,omitempty"`
	Attachment *uint32            `json:"attachment,omitempty"`
	Seq        uint64             `json:"seq,omitempty"`
	ExitedAt   time.Time          `json:"exited_at,omitzero"`
}

// TerminalError is the reply to a terminal message that failed.
type TerminalError struct {
	protocol.Request
	SessionID protocol.SessionID `json:"session_id,omitempty"`
	Code      protocol.Code      `json:"code"`
	Message   string             `json:"message"`
	Cause     protocol.Code      `json:"cause,omitempty"`
}

// MessageType implements protocol.Message.
func (Hello) MessageType() string              { return "hello" }
func (Vouch) MessageType() string              { return "vouch" }
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
func (Changes) MessageType() string            { return "changes" }
func (ChangesContent) MessageType() string     { return "changes_content" }
func (Commands) MessageType() string           { return "commands" }
func (CommandsContent) MessageType() string    { return "commands_content" }
func (HistoryContent) MessageType() string     { return "history_content" }
func (Search) MessageType() string             { return "search" }
func (Past) MessageType() string               { return "past" }
func (PastContent) MessageType() string        { return "past_content" }
func (SearchPast) MessageType() string         { return "search_past" }
func (SearchPastContent) MessageType() string  { return "search_past_content" }
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
func (Ping) MessageType() string               { return "ping" }
func (Ticket) MessageType() string             { return "ticket" }
func (TicketIssued) MessageType() string       { return "ticket_issued" }
func (TerminalOpen) MessageType() string       { return "terminal.open" }
func (TerminalOpened) MessageType() string     { return "terminal.opened" }
func (TerminalData) MessageType() string       { return "terminal.data" }
func (TerminalResize) MessageType() string     { return "terminal.resize" }
func (TerminalClose) MessageType() string      { return "terminal.close" }
func (TerminalExit) MessageType() string       { return "terminal.exit" }
func (TerminalError) MessageType() string      { return "terminal.error" }
