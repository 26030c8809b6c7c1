// Package link contains the control messages between a proxy and the supervisor.
//
// The first stream of a link carries the hello. Every other stream begins with one of the
// requests below, sent by the proxy, and its reply or an Error. After the reply to Attach the
// stream carries the attachment, and after the reply to Events it carries events. All other
// streams are closed after the reply.
//
// Invariant: Messages contains every message. schema.json and SPEC.md must describe the same
// messages; a test compares them.
//
// Not here: streams (package shared/link).
package link

import (
	"time"

	"holdfast/protocol"
)

// Messages contains all control messages of the link.
var Messages = protocol.NewRegistry(func() []protocol.RequestKind { return requests },
	Hello{}, Welcome{}, Error{},
	Appearance{}, Detach{}, Pause{}, Paused{}, Unpause{}, Resync{}, Resized{}, Stolen{}, Typed{}, Event{},
)

// requests contains one row for each message that may begin a stream.
var requests = []protocol.RequestKind{
	{Message: Create{}, Reply: Session{}, Repeat: protocol.RepeatToken},
	{Message: Reopen{}, Reply: Session{}, Repeat: protocol.RepeatToken, IsAboutSession: true},
	{Message: List{}, Reply: Sessions{}, Repeat: protocol.RepeatRead},
	{Message: Info{}, Reply: Session{}, Repeat: protocol.RepeatRead, IsAboutSession: true},
	{Message: Read{}, Reply: Data{}, Repeat: protocol.RepeatRead, IsAboutSession: true},
	{Message: Screen{}, Reply: ScreenContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true},
	{Message: History{}, Reply: HistoryContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true},
	{Message: Changes{}, Reply: ChangesContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true},
	{Message: Commands{}, Reply: CommandsContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true},
	{Message: Search{}, Reply: SearchContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true, IsLong: true},
	{Message: Past{}, Reply: PastContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true, IsLong: true},
	{Message: SearchPast{}, Reply: SearchPastContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true, IsLong: true},
	{Message: SizePolicy{}, Reply: OK{}, Repeat: protocol.RepeatSet, IsAboutSession: true, IsCostly: true},
	{Message: Clear{}, Reply: OK{}, Repeat: protocol.RepeatSet, IsAboutSession: true},
	{Message: Relabel{}, Reply: Session{}, Repeat: protocol.RepeatSet, IsAboutSession: true},
	{Message: Limit{}, Reply: Session{}, Repeat: protocol.RepeatSet, IsAboutSession: true},
	{Message: Freeze{}, Reply: OK{}, Repeat: protocol.RepeatSet, IsAboutSession: true},
	{Message: Attach{}, Reply: Attached{}, Repeat: protocol.RepeatWriter, IsAboutSession: true, IsLong: true},
	{Message: Resize{}, Reply: OK{}, Repeat: protocol.RepeatSet, IsAboutSession: true, IsCostly: true},
	{Message: Interrupt{}, Reply: OK{}, Repeat: protocol.RepeatNever, IsAboutSession: true},
	{Message: Signal{}, Reply: OK{}, Repeat: protocol.RepeatNever, IsAboutSession: true},
	{Message: Terminate{}, Reply: OK{}, Repeat: protocol.RepeatInstance, IsAboutSession: true},
	{Message: Forget{}, Reply: OK{}, Repeat: protocol.RepeatInstance, IsAboutSession: true},
	{Message: Wait{}, Reply: Exited{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsLong: true, IsIdle: true},
	{Message: Write{}, Reply: Accepted{}, Repeat: protocol.RepeatWriter, IsAboutSession: true},
	{Message: Mark{}, Reply: Marked{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsCostly: true},
	{Message: Await{}, Reply: Awaited{}, Repeat: protocol.RepeatRead, IsAboutSession: true, IsLong: true},
	{Message: Environment{}, Reply: EnvironmentContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true},
	{Message: Away{}, Reply: AwayContent{}, Repeat: protocol.RepeatRead, IsAboutSession: true},
	{Message: Events{}, Reply: Subscribed{}, Repeat: protocol.RepeatRead, IsLong: true, IsIdle: true},
	{Message: Status{}, Reply: StatusReport{}, Repeat: protocol.RepeatRead},
	{Message: Stats{}, Reply: StatsReport{}, Repeat: protocol.RepeatRead},
	{Message: Shutdown{}, Reply: OK{}, Repeat: protocol.RepeatNever, IsLong: true},
	{Message: Upgrade{}, Reply: Upgraded{}, Repeat: protocol.RepeatNever, IsLong: true},
}

// ReplyAs returns the reply of a supervisor as a T. It takes both results of a call, and returns the error if there is one.
// If the reply is another message, the error is internal.
func ReplyAs[T protocol.Message](reply protocol.Message, err error) (T, error) {
	as, ok := reply.(T)
	if err == nil && !ok {
		err = protocol.Errorf(protocol.CodeInternal, "the supervisor answered with %s", reply.MessageType())
	}
	return as, err
}

// Hello is the first message. The proxy sends it.
type Hello struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	PID          int                   `json:"pid"`
	Version      string                `json:"version"`
	Instance     protocol.Instance     `json:"instance"`
	Name         string                `json:"name,omitempty"`   // name of the proxy among several
	Secret       string                `json:"secret,omitempty"` // required if the supervisor has a secret
}

// Welcome is the reply to Hello. One or more Sessions follow on the same stream. The last of them
// has More unset.
type Welcome struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Agreed       int                   `json:"agreed"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	PID          int                   `json:"pid"`
	Version      string                `json:"version"`
	Instance     protocol.Instance     `json:"instance"`
}

// Sessions contains a list of sessions, or a part of it. If More is set, another part follows.
type Sessions struct {
	Sessions []protocol.SessionInfo `json:"sessions"`
	More     bool                   `json:"more,omitempty"`
}

// Error is the reply to a request that failed. On an attachment it reports that a frame of
// the proxy had no effect; the attachment continues.
type Error struct {
	protocol.Error
}

// OK is the reply to a request that succeeded and has no result.
type OK struct{}

// Create starts a session. The reply is Session.
type Create struct {
	SessionID protocol.SessionID `json:"session_id,omitempty"` // "": Holdfast chooses one
	protocol.SpawnSpec
	// Token makes Create repeatable, if it is set: if the session exists and was created with
	// the same token, the reply describes it.
	Token string `json:"token,omitempty"`
	// Account is the account whose limits apply to the session. If it is not set, the
	// originator is the account. A client may choose the originator, but not the account.
	Account string `json:"account,omitempty"`
	// DefaultLimits are the settings' limits for fields that SpawnSpec does not contain. If the
	// supervisor cannot set them, it starts the session nevertheless.
	DefaultLimits protocol.Limits `json:"default_limits,omitzero"`
}

// Reopen starts an exited session again under its id, as a new instance. Absent fields keep
// their values. The reply is Session.
type Reopen struct {
	SessionID protocol.SessionID `json:"session_id"`
	protocol.RespawnSpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
	Token    string            `json:"token,omitempty"`    // as in Create
	// EarlyExitMS is the time after the start in milliseconds in which the proxy removes the
	// new instance if it ends, by Forget with Restore. If no proxy does so, the supervisor
	// does after some seconds.
	EarlyExitMS int64 `json:"early_exit_ms,omitempty"`
}

// List requests all sessions, or those of one originator. The reply is one or more Sessions.
type List struct {
	Originator string `json:"originator,omitempty"`
}

// Info requests the description of one session. The reply is Session.
type Info struct {
	SessionID protocol.SessionID `json:"session_id"`
}

// Session describes one session.
type Session struct {
	Session protocol.SessionInfo `json:"session"`
}

// Read requests output of a session from an offset on, as far as the ring has it. The reply is
// Data.
type Read struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Offset    uint64             `json:"offset"`
	MaxBytes  int                `json:"max_bytes,omitempty"` // largest size of the reply's data; default and maximum 512 KiB
	Past      bool               `json:"past,omitempty"`      // also output that only the store has; the reply then has times and sizes
}

// Data contains output of a session.
type Data struct {
	Instance protocol.Instance   `json:"instance"`
	Offset   uint64              `json:"offset"`          // offset of the first byte; later than requested if the ring no longer has the bytes before
	End      uint64              `json:"end"`             // number of bytes of output so far
	Data     []byte              `json:"data"`            // base64
	Times    []protocol.PastTime `json:"times,omitempty"` // if the request has past: when the data was printed
	Sizes    []protocol.PastSize `json:"sizes,omitempty"` // if the request has past: the size of the terminal at Offset, and its changes up to the end of the data
}

// Screen requests a session's screen, also after the session has ended, or the screen at an
// earlier moment. The reply is ScreenContent. If the proxy closes the stream, the work ends.
type Screen struct {
	protocol.ScreenSpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
}

// ScreenContent contains a session's screen, or its last lines.
type ScreenContent struct {
	protocol.ScreenContent
}

// History requests lines of a session, the newest first. The reply is
// HistoryContent.
type History struct {
	protocol.HistorySpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
}

// HistoryContent contains lines of a session, the newest first.
type HistoryContent struct {
	protocol.HistoryContent
}

// Changes requests the least text that brings a reader of a session up to date. The reply is
// ChangesContent.
type Changes struct {
	protocol.ChangesSpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
}

// ChangesContent contains the changes since a mark.
type ChangesContent struct {
	protocol.ChangesContent
}

// Commands requests the commands of a session that have ended. The reply is CommandsContent.
type Commands struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
}

// CommandsContent contains the commands that have ended, the oldest first.
type CommandsContent struct {
	protocol.CommandsContent
}

// Search requests the lines that match a pattern. The reply is SearchContent. If the proxy
// closes the stream, the search ends.
type Search struct {
	protocol.SearchSpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
}

// SearchContent contains the lines that match, the newest first.
type SearchContent struct {
	protocol.SearchContent
}

// Past requests a description of a session's past. The reply is PastContent. If the proxy closes
// the stream, the work ends.
type Past struct {
	protocol.PastSpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
}

// PastContent describes the past of a session.
type PastContent struct {
	protocol.PastContent
}

// SearchPast requests the lines of a session's past that match a pattern. The reply is
// SearchPastContent. If the proxy closes the stream, the search ends.
type SearchPast struct {
	protocol.PastSearchSpec
	Instance protocol.Instance `json:"instance,omitempty"` // if set, the session must have this instance
}

// SearchPastContent contains the lines that match, the newest first.
type SearchPastContent struct {
	protocol.PastSearchContent
}

// SizePolicy changes the size policy of a session. The reply is OK.
type SizePolicy struct {
	SessionID protocol.SessionID  `json:"session_id"`
	Instance  protocol.Instance   `json:"instance,omitempty"` // if set, the session must have this instance
	Policy    protocol.SizePolicy `json:"policy"`
	Cols      int                 `json:"cols,omitempty"` // for policy fixed; 0: leave the size unchanged
	Rows      int                 `json:"rows,omitempty"`
}

// Validate returns an error if the size is wrong for every session.
func (m SizePolicy) Validate() error { return protocol.Size{Cols: m.Cols, Rows: m.Rows}.Validate() }

// Clear deletes the lines above a session's screen, for all viewers. The reply is OK.
type Clear struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Screen    bool               `json:"screen,omitempty"`   // delete the screen's rows as well, except the row with the cursor, which moves to the top
}

// Relabel changes those labels of a session that it contains. The reply is Session.
type Relabel struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Labels    map[string]string  `json:"labels"`             // an empty value removes the label
}

// Limit changes those limits of a running session that it contains. The reply is Session,
// or unsupported if the session has no cage.
type Limit struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Limits    protocol.Limits    `json:"limits"`
}

// Freeze stops all processes of a session, or continues them. The reply is OK, also if the
// session is in that state already, or unsupported if the session has no cage.
type Freeze struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Frozen    bool               `json:"frozen"`             // false: continue the processes
}

// Appearance reports, on an attachment's stream, that the properties of the viewer's terminal have
// changed.
type Appearance struct {
	protocol.Appearance
}

// Attach requests an attachment to a session. Attachment is the number in the stream's data frames.
// The reply is Attached.
type Attach struct {
	Attachment uint32 `json:"attachment"`
	protocol.AttachSpec
	// Shadow, with mode read_only, makes an attachment invisible in viewers, events and sizes.
	// Proxies compare themselves with each other by it. Clients cannot request it.
	Shadow bool `json:"shadow,omitempty"`
}

// Attached is the reply to Attach. The frames of the snapshot follow, if there is one, and then output.
type Attached struct {
	protocol.AttachInfo
}

// Detach ends an attachment. The session continues.
type Detach struct{}

// Pause stops the output of an attachment, so that another proxy can take the attachment over. The
// reply is Paused, after all output that was being sent.
type Pause struct{}

// Paused tells that no output follows until Unpause. InputOffset is the accepted input offset after
// all input that was sent before Pause.
type Paused struct {
	InputOffset uint64 `json:"input_offset"`
}

// Unpause continues the output of a paused attachment.
type Unpause struct{}

// Resize changes the size of a viewer, on its attachment's stream. As a request with SessionID it
// changes the size of the session, and the reply is OK.
type Resize struct {
	SessionID protocol.SessionID `json:"session_id,omitempty"` // absent on an attachment
	Instance  protocol.Instance  `json:"instance,omitempty"`   // if set, the session must have this instance
	Cols      int                `json:"cols"`
	Rows      int                `json:"rows"`
}

// Validate returns an error if the size is wrong for every session.
func (m Resize) Validate() error { return protocol.Size{Cols: m.Cols, Rows: m.Rows}.Validate() }

// Interrupt sends SIGINT to the foreground process group of the terminal. It is sent on an
// attachment's stream, or as a request with SessionID. The reply to the request is OK.
type Interrupt struct {
	SessionID protocol.SessionID `json:"session_id,omitempty"` // absent on an attachment
	Instance  protocol.Instance  `json:"instance,omitempty"`   // if set, the session must have this instance
}

// Signal sends a signal to the process groups of a session. It has no other effect. The
// reply is OK.
type Signal struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Signal    string             `json:"signal"`             // "SIGUSR1", "USR1" or a number
	protocol.Asker
}

// Terminate ends a session: the soft signal, the grace, and then SIGKILL. The reply is OK when the
// end has been scheduled, or session_exited with the exit record if the session has ended already.
type Terminate struct {
	SessionID  protocol.SessionID `json:"session_id"`
	GraceMS    *int64             `json:"grace_ms,omitempty"`    // absent: 250
	SoftSignal string             `json:"soft_signal,omitempty"` // "": SIGHUP
	Reason     protocol.Reason    `json:"reason,omitempty"`      // "": user_requested
	TimedOut   bool               `json:"timed_out,omitempty"`
	// All ends every process of the session's cage, also processes without the terminal, and
	// also after the session has exited. Without a cage the error is unsupported.
	All bool `json:"all,omitempty"`
	// Instance and IdleMS are conditions, if they are set. If the session has another instance,
	// the error is instance_mismatch. If there was input, output or a resize in the last IdleMS
	// milliseconds, the error is session_running. The session then continues.
	Instance protocol.Instance `json:"instance,omitempty"`
	IdleMS   int64             `json:"idle_ms,omitempty"`
	protocol.Asker
}

// Forget deletes an exited session. The reply is OK.
type Forget struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Restore   bool               `json:"restore,omitempty"`  // the session has failed after Reopen: restore the instance that Reopen has just replaced
}

// Wait waits for the end of a session. The reply is Exited, or the error timeout.
type Wait struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"`   // if set, the session must have this instance
	TimeoutMS *int64             `json:"timeout_ms,omitempty"` // absent: no time limit
}

// Exited reports the end of a session. It is the reply to Wait and the last frame of an attachment.
type Exited struct {
	SessionID protocol.SessionID  `json:"session_id"`
	Instance  protocol.Instance   `json:"instance"`
	Labels    map[string]string   `json:"labels,omitempty"`
	Exit      protocol.ExitRecord `json:"exit"`
}

// Write sends input to a session without an attachment. The reply is Accepted, or input_full with
// the accepted input offset.
type Write struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
	Data      []byte             `json:"data"`               // base64
	Writer    string             `json:"writer,omitempty"`   // writer of the input; with Offset, the input is accepted exactly once
	Offset    uint64             `json:"offset,omitempty"`
	Paste     bool               `json:"paste,omitempty"`   // Data is text, to be enclosed in paste marks if the program has set mode 2004
	Keys      []string           `json:"keys,omitempty"`    // names of keys instead of Data; each counts as one byte of input
	HoldMS    int64              `json:"hold_ms,omitempty"` // time for which Writer holds back the writes of others, or until its next write without it
}

// Mark requests a mark of the session's present position. The reply is Marked.
type Mark struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
}

// Marked is the reply to Mark.
type Marked struct {
	protocol.MarkInfo
}

// Await waits for an event on a session's screen. The reply is Awaited, or the error
// timeout. If the proxy closes the stream, the wait ends.
type Await struct {
	protocol.AwaitSpec
	Instance  protocol.Instance `json:"instance,omitempty"`   // if set, the session must have this instance
	TimeoutMS *int64            `json:"timeout_ms,omitempty"` // absent: no time limit
}

// Awaited is the reply to Await.
type Awaited struct {
	protocol.AwaitedInfo
}

// Environment requests the environment of the viewer that last sent one. The reply is
// EnvironmentContent.
type Environment struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
}

// EnvironmentContent contains a viewer's environment.
type EnvironmentContent struct {
	Env []string `json:"env"` // K=V
}

// Away requests the events in a session since its last viewer left. The reply is
// AwayContent.
type Away struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // if set, the session must have this instance
}

// AwayContent contains these events.
type AwayContent struct {
	protocol.AwayInfo
}

// Typed sends the input of all writers to an attachment that has requested it.
type Typed struct {
	At     time.Time `json:"at"`
	Offset uint64    `json:"offset"`           // output offset when the input arrived
	Data   []byte    `json:"data"`             // base64
	Masked bool      `json:"masked,omitempty"` // the terminal does not echo the input, so each character is replaced by an asterisk
}

// Accepted reports the input offset up to which a writer's input was accepted.
type Accepted struct {
	Offset uint64 `json:"offset"`
}

// Resync tells a viewer that it was too slow and the ring no longer has its next output. A snapshot
// follows, and then output from Offset on.
type Resync struct {
	Offset        uint64 `json:"offset"`
	BytesMissed   uint64 `json:"bytes_missed"`
	SnapshotBytes int    `json:"snapshot_bytes"`
	View          bool   `json:"view,omitempty"`        // the snapshot shows a view of the viewer's own
	ScreenOnly    bool   `json:"screen_only,omitempty"` // the snapshot has no lines above the screen, and the viewer must keep its own
}

// Resized reports the new size of the session to its viewers.
type Resized struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Stolen ends an attachment because another client has attached with steal.
type Stolen struct {
	StolenBy string `json:"stolen_by"`          // name of the other client, or ""
	Detached bool   `json:"detached,omitempty"` // the other client has only ended this attachment, and leaves
}

// Events requests events. If Instance and After are set and Instance is the supervisor's, the events
// begin after the event with number After. The reply is Subscribed, and Event messages follow.
type Events struct {
	Instance protocol.Instance `json:"instance,omitempty"`
	After    uint64            `json:"after,omitempty"`
}

// Subscribed is the reply to Events.
type Subscribed struct {
	Instance protocol.Instance `json:"instance"` // instance of the supervisor
	Seq      uint64            `json:"seq"`      // number of the last event; the following events have greater numbers
}

// Event reports one event.
type Event struct {
	Seq     uint64                `json:"seq"`
	Event   protocol.EventKind    `json:"event"`
	At      time.Time             `json:"at"`
	Session *protocol.SessionInfo `json:"session,omitempty"`
	Missed  uint64                `json:"missed,omitempty"` // for event "missed": number of dropped events

	Notification *protocol.Notification `json:"notification,omitempty"` // for event "notification"
}

// Status requests the supervisor's status. The reply is StatusReport.
type Status struct{}

// StatusReport contains the supervisor's status.
type StatusReport struct {
	Supervisor protocol.ProcessStatus `json:"supervisor"`
}

// Stats requests the supervisor's counters. The reply is StatsReport.
type Stats struct{}

// StatsReport contains the supervisor's counters. A counter is absent if it is 0, or not known on the
// supervisor's system. Totals begin at the supervisor's start.
type StatsReport struct {
	StartedAt time.Time `json:"started_at"`
	Links     int       `json:"links"`

	Starting int `json:"starting"` // number of sessions in this state; so are the next three fields
	Running  int `json:"running"`
	Draining int `json:"draining"`
	Exited   int `json:"exited"`

	Attachments  int    `json:"attachments"`   // number of attachments, including those with Shadow
	BytesPrinted uint64 `json:"bytes_printed"` // bytes of output of all sessions
	BytesTyped   uint64 `json:"bytes_typed"`   // bytes of accepted input; without the supervisor's own answers to terminal queries
	Spawns       uint64 `json:"spawns"`
	SpawnsFailed uint64 `json:"spawns_failed"`
	ExitsNatural uint64 `json:"exits_natural"` // number of exits with this outcome; so are the next two fields
	ExitsSoft    uint64 `json:"exits_soft"`
	ExitsHard    uint64 `json:"exits_hard"`
	Resyncs      uint64 `json:"resyncs"`      // number of snapshots that were sent because the ring no longer had a viewer's next output
	BytesMissed  uint64 `json:"bytes_missed"` // bytes of output that these viewers missed

	RecordingsFailing int    `json:"recordings_failing,omitempty"` // number of sessions that cannot be stored on disk
	RecordingFailures uint64 `json:"recording_failures,omitempty"` // how often a session could no longer be stored
	BytesStored       uint64 `json:"bytes_stored,omitempty"`       // bytes that were written to disk
	BytesUnstored     uint64 `json:"bytes_unstored,omitempty"`     // bytes of output that are not stored, or are stored only as a screen

	PTYs       int    `json:"ptys,omitempty"` // PTYs of the whole system
	MaxPTYs    int    `json:"max_ptys,omitempty"`
	Files      int    `json:"files,omitempty"` // open descriptors of the supervisor
	MaxFiles   int    `json:"max_files,omitempty"`
	Goroutines int    `json:"goroutines"`
	HeapBytes  uint64 `json:"heap_bytes"` // objects that are live or not yet swept
	RSSBytes   uint64 `json:"rss_bytes,omitempty"`
}

// Shutdown stops the supervisor. If EndSessions is not set and sessions live, the error is
// session_running. Otherwise the reply is OK, after all sessions have ended.
type Shutdown struct {
	EndSessions bool `json:"end_sessions,omitempty"`
}

// Upgrade makes the supervisor execute another program in place, after a trial. If DryRun is set and
// the trial succeeds, the reply is Upgraded. If the upgrade fails, the reply is an Error, and nothing
// has changed. If it succeeds, the link ends without a reply.
type Upgrade struct {
	Program string `json:"program"` // absolute path
	DryRun  bool   `json:"dry_run,omitempty"`
	Keeper  bool   `json:"keeper,omitempty"` // upgrade the keeper first, if there is one
}

// Upgraded reports that the trial of a program has succeeded.
type Upgraded struct {
	Version  string `json:"version,omitempty"`
	Sessions int    `json:"sessions"` // number of sessions that run
}

// MessageType implements protocol.Message.
func (Hello) MessageType() string              { return "hello" }
func (Welcome) MessageType() string            { return "welcome" }
func (Sessions) MessageType() string           { return "sessions" }
func (Error) MessageType() string              { return "error" }
func (OK) MessageType() string                 { return "ok" }
func (Create) MessageType() string             { return "create" }
func (Reopen) MessageType() string             { return "reopen" }
func (List) MessageType() string               { return "list" }
func (Info) MessageType() string               { return "info" }
func (Session) MessageType() string            { return "session" }
func (Read) MessageType() string               { return "read" }
func (Data) MessageType() string               { return "data" }
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
func (Appearance) MessageType() string         { return "appearance" }
func (Relabel) MessageType() string            { return "relabel" }
func (Clear) MessageType() string              { return "clear" }
func (Attach) MessageType() string             { return "attach" }
func (Attached) MessageType() string           { return "attached" }
func (Pause) MessageType() string              { return "pause" }
func (Paused) MessageType() string             { return "paused" }
func (Unpause) MessageType() string            { return "unpause" }
func (Detach) MessageType() string             { return "detach" }
func (Resize) MessageType() string             { return "resize" }
func (Interrupt) MessageType() string          { return "interrupt" }
func (Signal) MessageType() string             { return "signal" }
func (Terminate) MessageType() string          { return "terminate" }
func (Forget) MessageType() string             { return "forget" }
func (Wait) MessageType() string               { return "wait" }
func (Exited) MessageType() string             { return "exited" }
func (Write) MessageType() string              { return "write" }
func (Accepted) MessageType() string           { return "accepted" }
func (Resync) MessageType() string             { return "resync" }
func (Resized) MessageType() string            { return "resized" }
func (Stolen) MessageType() string             { return "stolen" }
func (Mark) MessageType() string               { return "mark" }
func (Marked) MessageType() string             { return "marked" }
func (Await) MessageType() string              { return "await" }
func (Awaited) MessageType() string            { return "awaited" }
func (Environment) MessageType() string        { return "environment" }
func (EnvironmentContent) MessageType() string { return "environment_content" }
func (Away) MessageType() string               { return "away" }
func (AwayContent) MessageType() string        { return "away_content" }
func (Typed) MessageType() string              { return "typed" }
func (Limit) MessageType() string              { return "limit" }
func (Freeze) MessageType() string             { return "freeze" }
func (Events) MessageType() string             { return "events" }
func (Subscribed) MessageType() string         { return "subscribed" }
func (Event) MessageType() string              { return "event" }
func (Status) MessageType() string             { return "status" }
func (StatusReport) MessageType() string       { return "status_report" }
func (Stats) MessageType() string              { return "stats" }
func (StatsReport) MessageType() string        { return "stats_report" }
func (Shutdown) MessageType() string           { return "shutdown" }
func (Upgrade) MessageType() string            { return "upgrade" }
func (Upgraded) MessageType() string           { return "upgraded" }
