// Package link holds the control messages between a proxy and the supervisor.
//
// The first stream of a link is hello. Every other stream begins with one of
// the requests below, from the proxy, and is answered by one reply or an Error;
// after the reply to Attach the stream carries an attachment, after the reply
// to Events it carries events, and all others are closed.
//
// Invariant: Messages lists every message there is; schema.json and SPEC.md
// say the same, and a test compares the three.
//
// Not here: streams (package shared/link).
package link

import (
	"time"

	"holdfast/protocol"
)

// Messages is every control message of the link.
var Messages = protocol.NewRegistry(
	Hello{}, Welcome{}, Sessions{}, Error{}, OK{},
	Create{}, Reopen{}, List{}, Info{}, Session{}, Read{}, Data{}, Screen{}, ScreenContent{},
	History{}, HistoryContent{}, Search{}, SearchContent{}, SizePolicy{}, Appearance{}, Relabel{},
	Attach{}, Attached{}, Detach{}, Resize{}, Interrupt{}, Signal{}, Terminate{}, Forget{}, Wait{}, Exited{},
	Pause{}, Paused{}, Unpause{}, Write{}, Accepted{}, Resync{}, Resized{}, Stolen{},
	Events{}, Subscribed{}, Event{}, Status{}, StatusReport{}, Stats{}, StatsReport{}, Shutdown{},
	Upgrade{}, Upgraded{},
	Mark{}, Marked{}, Await{}, Awaited{}, Environment{}, EnvironmentContent{}, Away{}, AwayContent{}, Typed{}, Limit{}, Freeze{}, Clear{},
)

// Hello is the first message, from the proxy.
type Hello struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	PID          int                   `json:"pid"`
	Version      string                `json:"version"`
	Instance     protocol.Instance     `json:"instance"`
	Name         string                `json:"name,omitempty"`   // which of several proxies
	Secret       string                `json:"secret,omitempty"` // where the supervisor wants one
}

// Welcome answers Hello. Sessions messages follow on the same stream until one
// has no More.
type Welcome struct {
	Protocol     protocol.VersionRange `json:"protocol"`
	Agreed       int                   `json:"agreed"`
	Capabilities protocol.Capabilities `json:"capabilities,omitempty"`
	PID          int                   `json:"pid"`
	Version      string                `json:"version"`
	Instance     protocol.Instance     `json:"instance"`
}

// Sessions enumerates sessions, in as many messages as it takes.
type Sessions struct {
	Sessions []protocol.SessionInfo `json:"sessions"`
	More     bool                   `json:"more,omitempty"`
}

// Error answers a request that failed. On an attachment it says that something
// the proxy sent was not done; the attachment goes on.
type Error struct {
	protocol.Error
}

// OK answers a request that has nothing to say.
type OK struct{}

// Create starts a session. It is answered by Session.
type Create struct {
	SessionID protocol.SessionID `json:"session_id,omitempty"` // "" makes one
	protocol.SpawnSpec
	// Token, where given, makes Create repeatable: if the session exists and
	// was made with the same token, it is the answer.
	Token string `json:"token,omitempty"`
	// Account, where given, is for whose limits the session counts, in place of
	// its originator, which a client may choose.
	Account string `json:"account,omitempty"`
	// DefaultLimits are those limits of the settings that SpawnSpec does not name. A
	// supervisor that cannot set them starts the session all the same.
	DefaultLimits protocol.Limits `json:"default_limits,omitzero"`
}

// Reopen starts an exited session again under its id, as a new instance.
// Fields that are absent are as they were. It is answered by Session.
type Reopen struct {
	SessionID protocol.SessionID `json:"session_id"`
	protocol.RespawnSpec
	Instance protocol.Instance `json:"instance,omitempty"` // where given, of this life only
	Token    string            `json:"token,omitempty"`    // as in Create
	// EarlyExitMS is within how long after its start the proxy removes the new life, with
	// restore, if it ends. If nobody does so, the supervisor does after some seconds.
	EarlyExitMS int64 `json:"early_exit_ms,omitempty"`
}

// List asks for all sessions, or those of one originator.
type List struct {
	Originator string `json:"originator,omitempty"`
}

// Info asks for one session. It is answered by Session.
type Info struct {
	SessionID protocol.SessionID `json:"session_id"`
}

// Session is one session.
type Session struct {
	Session protocol.SessionInfo `json:"session"`
}

// Read asks for the bytes a session printed, from an offset on, as far as the
// ring holds them. It is answered by Data.
type Read struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Offset    uint64             `json:"offset"`
	MaxBytes  int                `json:"max_bytes,omitempty"` // at most and by default 512 KiB
}

// Data is bytes a session printed.
type Data struct {
	Instance protocol.Instance `json:"instance"`
	Offset   uint64            `json:"offset"` // of the first byte; later than asked where the ring forgot
	End      uint64            `json:"end"`    // bytes printed so far
	Data     []byte            `json:"data"`   // base64
}

// Screen asks what a session's screen shows, also after its end. It is answered
// by ScreenContent.
type Screen struct {
	protocol.ScreenSpec
	Instance protocol.Instance `json:"instance,omitempty"` // where given, of this life only
}

// ScreenContent is a session's screen, or its last lines.
type ScreenContent struct {
	protocol.ScreenContent
}

// History asks for lines of a session, the newest first. It is answered by
// HistoryContent.
type History struct {
	protocol.HistorySpec
	Instance protocol.Instance `json:"instance,omitempty"` // where given, of this life only
}

// HistoryContent is lines of a session, the newest first.
type HistoryContent struct {
	protocol.HistoryContent
}

// Search asks for lines that match. It is answered by SearchContent; closing
// the stream gives up.
type Search struct {
	protocol.SearchSpec
	Instance protocol.Instance `json:"instance,omitempty"` // where given, of this life only
}

// SearchContent is lines that match, the newest first.
type SearchContent struct {
	protocol.SearchContent
}

// SizePolicy changes whose size a session has. It is answered by OK.
type SizePolicy struct {
	SessionID protocol.SessionID  `json:"session_id"`
	Instance  protocol.Instance   `json:"instance,omitempty"` // where given, of this life only
	Policy    protocol.SizePolicy `json:"policy"`
	Cols      int                 `json:"cols,omitempty"` // of fixed: 0 leaves it as it is
	Rows      int                 `json:"rows,omitempty"`
}

// Clear forgets the lines above a session's screen, for all viewers. It is answered by OK.
type Clear struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Screen    bool               `json:"screen,omitempty"`   // the screen's, too, but the row with the cursor, which moves to the top
}

// Relabel changes labels of a session, and leaves the others. It is answered by Session.
type Relabel struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Labels    map[string]string  `json:"labels"`             // an empty value takes one away
}

// Limit changes limits of a session that runs, and leaves the others. It is answered
// by Session, or by unsupported if the session has no cage.
type Limit struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Limits    protocol.Limits    `json:"limits"`
}

// Freeze stops all processes of a session, or has them run on. It is answered by OK,
// also if that is so already, or by unsupported if the session has no cage.
type Freeze struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Frozen    bool               `json:"frozen"`             // false thaws
}

// Appearance says, on an attachment's stream, that the viewer's terminal looks
// otherwise now.
type Appearance struct {
	protocol.Appearance
}

// Attach asks for a view of a session. Attachment is the number that the
// stream's data frames carry. It is answered by Attached.
type Attach struct {
	Attachment uint32 `json:"attachment"`
	protocol.AttachSpec
	// Shadow, with mode read_only, is for one who compares: no viewer, no event
	// and no size shows that it was there. Clients cannot ask for it.
	Shadow bool `json:"shadow,omitempty"`
}

// Attached answers Attach. Snapshot frames follow, then output.
type Attached struct {
	protocol.AttachInfo
}

// Detach ends an attachment; the session lives on.
type Detach struct{}

// Pause stops an attachment's output, so that another proxy can go on with it.
// It is answered by Paused, behind the output that was under way.
type Pause struct{}

// Paused says that nothing more comes until Unpause, and how far the input that
// came before Pause has been accepted.
type Paused struct {
	InputOffset uint64 `json:"input_offset"`
}

// Unpause lets a paused attachment go on.
type Unpause struct{}

// Resize changes a session's size, on an attachment's stream or as a request
// (answered by OK).
type Resize struct {
	SessionID protocol.SessionID `json:"session_id,omitempty"` // absent on an attachment
	Instance  protocol.Instance  `json:"instance,omitempty"`   // where given, of this life only
	Cols      int                `json:"cols"`
	Rows      int                `json:"rows"`
}

// Interrupt sends SIGINT to the foreground process group, on an attachment's
// stream or as a request (answered by OK).
type Interrupt struct {
	SessionID protocol.SessionID `json:"session_id,omitempty"` // absent on an attachment
	Instance  protocol.Instance  `json:"instance,omitempty"`   // where given, of this life only
}

// Signal sends a signal to the process groups of a session and nothing else.
// It is answered by OK.
type Signal struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Signal    string             `json:"signal"`             // "SIGUSR1", "USR1" or a number
	protocol.Asker
}

// Terminate ends a session: the soft signal, the grace, SIGKILL. It is
// answered by OK when the end has been scheduled, or by the exit record's
// error where it had ended already.
type Terminate struct {
	SessionID  protocol.SessionID `json:"session_id"`
	GraceMS    *int64             `json:"grace_ms,omitempty"`    // absent is 250
	SoftSignal string             `json:"soft_signal,omitempty"` // "" is SIGHUP
	Reason     protocol.Reason    `json:"reason,omitempty"`      // "" is user_requested
	TimedOut   bool               `json:"timed_out,omitempty"`
	// All ends every process of the session's cage, also those that have left the
	// terminal, and also after the session has exited. Without a cage it is unsupported.
	All bool `json:"all,omitempty"`
	// Instance and IdleMS, where given, say when not to: the session lives
	// another life, which is instance_mismatch, or there was input, output or a
	// resize within so many milliseconds, which is session_running.
	Instance protocol.Instance `json:"instance,omitempty"`
	IdleMS   int64             `json:"idle_ms,omitempty"`
	protocol.Asker
}

// Forget removes an exited session. It is answered by OK.
type Forget struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Restore   bool               `json:"restore,omitempty"`  // it has failed: the life in whose place it came a moment ago is there again
}

// Wait asks for a session's end. It is answered by Exited, or by timeout.
type Wait struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"`   // where given, of this life only
	TimeoutMS *int64             `json:"timeout_ms,omitempty"` // absent waits for ever
}

// Exited tells a session's end: it answers Wait and is the last frame of an
// attachment.
type Exited struct {
	SessionID protocol.SessionID  `json:"session_id"`
	Instance  protocol.Instance   `json:"instance"`
	Labels    map[string]string   `json:"labels,omitempty"`
	Exit      protocol.ExitRecord `json:"exit"`
}

// Write types into a session without an attachment. It is answered by
// Accepted, or by input_full with the offset up to which it was taken.
type Write struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
	Data      []byte             `json:"data"`               // base64
	Writer    string             `json:"writer,omitempty"`   // with Offset: exactly once
	Offset    uint64             `json:"offset,omitempty"`
	Paste     bool               `json:"paste,omitempty"` // Data is text, framed where the program asked for that (mode 2004)
	Keys      []string           `json:"keys,omitempty"`  // in place of Data: keys by name, one byte of input each
}

// Mark asks where a session is now. It is answered by Marked.
type Mark struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
}

// Marked answers Mark.
type Marked struct {
	protocol.MarkInfo
}

// Await waits for something on a session's screen. It is answered by Awaited, or by
// timeout; closing the stream gives up.
type Await struct {
	protocol.AwaitSpec
	Instance  protocol.Instance `json:"instance,omitempty"`   // where given, of this life only
	TimeoutMS *int64            `json:"timeout_ms,omitempty"` // absent waits for ever
}

// Awaited answers Await.
type Awaited struct {
	protocol.AwaitedInfo
}

// Environment asks for the environment of the last viewer that told its own. It is
// answered by EnvironmentContent.
type Environment struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
}

// EnvironmentContent is a viewer's environment.
type EnvironmentContent struct {
	Env []string `json:"env"` // K=V
}

// Away asks what has happened in a session since its last viewer went. It is answered
// by AwayContent.
type Away struct {
	SessionID protocol.SessionID `json:"session_id"`
	Instance  protocol.Instance  `json:"instance,omitempty"` // where given, of this life only
}

// AwayContent is what has happened meanwhile.
type AwayContent struct {
	protocol.AwayInfo
}

// Typed tells an attachment that asked for it what was typed.
type Typed struct {
	At     time.Time `json:"at"`
	Offset uint64    `json:"offset"`           // of output: what had been printed by then
	Data   []byte    `json:"data"`             // base64
	Masked bool      `json:"masked,omitempty"` // the terminal does not show it: an asterisk stands for each character
}

// Accepted says how far a writer's input has been accepted.
type Accepted struct {
	Offset uint64 `json:"offset"`
}

// Resync tells a viewer that the ring has overtaken: bytes were skipped, a
// snapshot follows, then output from Offset on.
type Resync struct {
	Offset        uint64 `json:"offset"`
	BytesMissed   uint64 `json:"bytes_missed"`
	SnapshotBytes int    `json:"snapshot_bytes"`
	View          bool   `json:"view,omitempty"`        // a view of the viewer's own begins
	ScreenOnly    bool   `json:"screen_only,omitempty"` // the snapshot has no lines above the screen: those it has are kept
}

// Resized tells the viewers of a session its new size.
type Resized struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Stolen ends an attachment in whose place another has come.
type Stolen struct {
	StolenBy string `json:"stolen_by"` // the other's client name, or ""
}

// Events asks for what happens, after the event with number After of this
// supervisor's life where given. It is answered by Subscribed, then Event
// messages follow.
type Events struct {
	Instance protocol.Instance `json:"instance,omitempty"`
	After    uint64            `json:"after,omitempty"`
}

// Subscribed answers Events.
type Subscribed struct {
	Instance protocol.Instance `json:"instance"` // the supervisor's
	Seq      uint64            `json:"seq"`      // the next event's number is greater
}

// Event is something that happened.
type Event struct {
	Seq     uint64                `json:"seq"`
	Event   protocol.EventKind    `json:"event"`
	At      time.Time             `json:"at"`
	Session *protocol.SessionInfo `json:"session,omitempty"`
	Missed  uint64                `json:"missed,omitempty"` // of event "missed"

	Notification *protocol.Notification `json:"notification,omitempty"` // of event "notification"
}

// Status asks for the supervisor's state. It is answered by StatusReport.
type Status struct{}

// StatusReport is the supervisor's state.
type StatusReport struct {
	Supervisor protocol.ProcessStatus `json:"supervisor"`
}

// Stats asks for the supervisor's numbers. It is answered by StatsReport; a
// supervisor that does not know it says unsupported.
type Stats struct{}

// StatsReport is the supervisor's numbers. Those that are absent are not known
// on its system, or are 0. What counts up does so from the supervisor's start.
type StatsReport struct {
	StartedAt time.Time `json:"started_at"`
	Links     int       `json:"links"`

	Starting int `json:"starting"` // sessions by their states
	Running  int `json:"running"`
	Draining int `json:"draining"`
	Exited   int `json:"exited"`

	Attachments  int    `json:"attachments"`   // those of proxies that compare, too
	BytesPrinted uint64 `json:"bytes_printed"` // of all sessions
	BytesTyped   uint64 `json:"bytes_typed"`   // accepted; not what the supervisor answers for a viewer
	Spawns       uint64 `json:"spawns"`
	SpawnsFailed uint64 `json:"spawns_failed"`
	ExitsNatural uint64 `json:"exits_natural"` // by outcome
	ExitsSoft    uint64 `json:"exits_soft"`
	ExitsHard    uint64 `json:"exits_hard"`
	Resyncs      uint64 `json:"resyncs"`      // snapshots for viewers that the ring had overtaken
	BytesMissed  uint64 `json:"bytes_missed"` // by them

	PTYs       int    `json:"ptys,omitempty"` // of the whole system
	MaxPTYs    int    `json:"max_ptys,omitempty"`
	Files      int    `json:"files,omitempty"` // descriptors of the supervisor
	MaxFiles   int    `json:"max_files,omitempty"`
	Goroutines int    `json:"goroutines"`
	HeapBytes  uint64 `json:"heap_bytes"` // live and not yet swept objects
	RSSBytes   uint64 `json:"rss_bytes,omitempty"`
}

// Shutdown stops the supervisor. While sessions live it is refused with
// session_running, unless EndSessions is set; it is answered by OK after every
// session has ended.
type Shutdown struct {
	EndSessions bool `json:"end_sessions,omitempty"`
}

// Upgrade has the supervisor become another program in place, once that was
// tried. It is answered by Upgraded where it is only to be tried, by an Error
// where nothing has changed, and else by the end of the link.
type Upgrade struct {
	Program string `json:"program"` // absolute path
	DryRun  bool   `json:"dry_run,omitempty"`
	Keeper  bool   `json:"keeper,omitempty"` // the keeper first, if there is one
}

// Upgraded says that a program can go on.
type Upgraded struct {
	Version  string `json:"version,omitempty"`
	Sessions int    `json:"sessions"` // that it was tried with
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
func (HistoryContent) MessageType() string     { return "history_content" }
func (Search) MessageType() string             { return "search" }
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
