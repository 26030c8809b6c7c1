package protocol

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Limits on what a peer may send. A test of each stands beside its check.
const (
	MaxIDLen      = 64        // session ids, pane ids, writers
	MaxArgs       = 4096      // argv entries, environment entries
	MaxLabels     = 64        // labels of a session
	MaxLabelBytes = 16 << 10  // all keys and values of a session's labels
	MaxSpawnBytes = 512 << 10 // argv, environment and cwd together
	MaxCwdBytes   = 4 << 10   // PATH_MAX on Linux
	MaxArgvInfo   = 32 << 10  // of argv in a SessionInfo; the rest is cut
	MaxCols       = 2000      // beyond any real display; bounds what a screen can cost
	MaxRows       = 1000
	DefaultCols   = 80 // what terminals have been since the VT100
	DefaultRows   = 24
)

// A SessionID names a session: the client's choice or ours, 1 to 64 of
// [a-zA-Z0-9_-].
type SessionID string

// Validate returns invalid_argument unless the id has its form.
func (id SessionID) Validate() error { return validateID("session id", string(id)) }

// ValidateWriter checks a writer's name, which has the form of an id.
func ValidateWriter(w string) error { return validateID("writer", w) }

// ValidID reports whether s has the form of an id.
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > MaxIDLen {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func validateID(what, s string) error {
	if ValidID(s) {
		return nil
	}
	return Errorf(CodeInvalidArgument, fmt.Sprintf("%s must be 1 to %d of [a-zA-Z0-9_-], it is %.80q", what, MaxIDLen, s))
}

// An Instance tells two lives of one id, or of one process, apart.
type Instance string

// NewInstance makes one from 64 random bits, as 16 hex digits.
func NewInstance() Instance { return Instance(NewToken(8)) }

// NewToken returns n random bytes from the system's generator, as hex.
func NewToken(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}

// Size is a terminal's size in character cells.
type Size struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Normalize puts 80 for zero (or negative) columns and 24 for zero rows, each
// on its own, and cuts both to their maximum.
func (s Size) Normalize() Size {
	return Size{
		Cols: min(cmp.Or(max(s.Cols, 0), DefaultCols), MaxCols),
		Rows: min(cmp.Or(max(s.Rows, 0), DefaultRows), MaxRows),
	}
}

func (s Size) String() string { return fmt.Sprintf("%dx%d", s.Cols, s.Rows) }

// State is where a session stands in its life.
//
//	starting → running → draining → exited → forgotten
type State string

// The states, in the order in which a session passes them.
const (
	StateStarting  State = "starting"  // its child is being started
	StateRunning   State = "running"   // its child runs
	StateDraining  State = "draining"  // its child has ended, its last output is being read
	StateExited    State = "exited"    // its exit record stands
	StateForgotten State = "forgotten" // nothing is left of it
)

// Outcome is how a child came to its end.
type Outcome string

// The outcomes.
const (
	OutcomeNatural Outcome = "natural" // by itself
	OutcomeSoft    Outcome = "soft"    // after the soft signal, within the grace
	OutcomeHard    Outcome = "hard"    // by SIGKILL, after the grace
)

// Reason is why a session ended.
type Reason string

// The reasons this product gives; a client may give its own.
const (
	ReasonExited        Reason = "exited"         // its child ended by itself
	ReasonUserRequested Reason = "user_requested" // somebody ended it
	ReasonIdleTimeout   Reason = "idle_timeout"   // the idle sweep ended it
	ReasonShutdown      Reason = "shutdown"       // the supervisor was stopped
	ReasonWaitError     Reason = "wait_error"     // its child's status could not be had
)

// MaxReasonLen bounds a client's own reason, in bytes.
const MaxReasonLen = 200

// An ExitRecord is what remains of a child.
type ExitRecord struct {
	ExitCode  int       `json:"exit_code"`        // 0 to 255; 128+n after signal n; -1 unknown
	Signal    string    `json:"signal,omitempty"` // "SIGTERM", where a signal ended it
	Outcome   Outcome   `json:"outcome"`
	Reason    Reason    `json:"reason"`
	TimedOut  bool      `json:"timed_out"`
	LastLines []string  `json:"last_lines"` // the last 5 lines that are not empty
	Tail      []string  `json:"tail"`       // the last 20 lines
	StartedAt time.Time `json:"started_at"`
	ExitedAt  time.Time `json:"exited_at"`
	Survivors []int     `json:"survivors,omitempty"` // pids that no signal ended

	// What else is known; each is absent where it is not.
	EndedBy     string    `json:"ended_by,omitempty"`      // who asked for the end, or sent the signal that it was: a client's name
	EndedByUser string    `json:"ended_by_user,omitempty"` // and whose client that is, where a policy knows
	Cwd         string    `json:"cwd,omitempty"`           // where it was when that was last looked at
	OOM         OOMSource `json:"oom,omitempty"`           // by what it is known that memory ran out
	CoreDumped  bool      `json:"core_dumped,omitempty"`
	Usage       Usage     `json:"usage,omitzero"`
	Cage        *Cage     `json:"cage,omitempty"` // what all of the session used, and whether it ran into a limit
}

// OOMSource is by what it is known that a child was killed because memory ran
// out.
type OOMSource string

// The sources. The kernel's log names the process. A cgroup only counts: one of
// those in it was killed for that, at about the time when the child was killed.
const (
	OOMKernelLog OOMSource = "kernel_log"
	OOMCgroup    OOMSource = "cgroup"
)

// Usage is what a child and those of its descendants that it waited for took.
type Usage struct {
	UserMS      int64  `json:"user_ms"`       // processor time
	SystemMS    int64  `json:"system_ms"`     // the kernel's for it
	MaxRSSBytes uint64 `json:"max_rss_bytes"` // the most memory that one of them had at a time; 0 if that is not known
	MinorFaults uint64 `json:"minor_faults"`
	MajorFaults uint64 `json:"major_faults"` // pages that had to be read
}

// Asker is who asks for something on behalf of whom.
type Asker struct {
	By     string `json:"by,omitempty"`      // a client, as it calls itself
	ByUser string `json:"by_user,omitempty"` // its user, where a policy knows
}

// MaxAsker bounds each of an Asker's names, in bytes. More is cut off.
const MaxAsker = 256

// Cut returns a with names that are not too long, and valid UTF-8.
func (a Asker) Cut() Asker {
	cut := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), MaxAsker)], "") }
	return Asker{cut(a.By), cut(a.ByUser)}
}

// How many lines an exit record keeps, and how long one may be in bytes; and
// how long what a program says may be: a title, a notification's body.
const (
	LastLines      = 5
	TailLines      = 20
	MaxTailLine    = 1 << 10
	MaxTitle       = 1 << 10
	MaxScrollback  = 1_000_000 // lines kept above a screen; more is cut to it
	MaxScreenBytes = 900 << 10 // of the lines or cells in one answer
)

// Labels the proxy gives a meaning to; the supervisor knows none.
const (
	LabelPane        = "pane_id"
	LabelTitle       = "title"
	LabelDescription = "description"
	LabelParentAgent = "parent_agent"
	LabelTask        = "task_id"
	LabelWorkspace   = "workspace_id"
	LabelUser        = "user_id"
	// LabelIdleTimeout is after how long without input, output or a resize the
	// session is ended: "90m", as Go writes a duration; "0" is never. It goes
	// before the proxy's idle_timeout.
	LabelIdleTimeout = "idle_timeout"
	// Limits that spawn does not name, as LimitField.Parse reads them. They go before
	// the proxy's settings.
	LabelMemoryMax  = "memory_max"
	LabelMemoryHigh = "memory_high"
	LabelPIDsMax    = "pids_max"
	LabelCPUMax     = "cpu_max"
	LabelCPUWeight  = "cpu_weight"
)

// Foreground is the process that a session's terminal serves, as the system tells when it
// is asked. The proxy adds it; it is never on the link.
type Foreground struct {
	PID      int    `json:"pid"`                // the leader of the terminal's foreground process group
	Name     string `json:"name,omitempty"`     // as the system has it; programs choose it
	Cwd      string `json:"cwd,omitempty"`      // its working directory
	Children bool   `json:"children,omitempty"` // the session's own program has children; false if that is not known
	Stopped  bool   `json:"stopped,omitempty"`  // the session's own program is stopped: SIGCONT continues it
}

// SessionInfo is what can be known of a session at one moment.
type SessionInfo struct {
	ID              SessionID         `json:"id"`
	Instance        Instance          `json:"instance"`
	PID             int               `json:"pid"`
	State           State             `json:"state"`
	Size            Size              `json:"size"`
	Argv            []string          `json:"argv"`
	Cwd             string            `json:"cwd"`                   // where it was started
	CurrentCwd      string            `json:"current_cwd,omitempty"` // where it says that it is now
	Title           string            `json:"title,omitempty"`       // what its program calls its window
	Labels          map[string]string `json:"labels,omitempty"`
	Originator      string            `json:"originator,omitempty"`
	CreatedAt       time.Time         `json:"created_at"`
	LastIOAt        time.Time         `json:"last_io_at"`    // last read, write or resize
	OutputOffset    uint64            `json:"output_offset"` // bytes printed so far
	RingStart       uint64            `json:"ring_start"`    // the oldest offset still kept
	ScrollbackLines int               `json:"scrollback_lines"`
	SizePolicy      SizePolicy        `json:"size_policy,omitempty"` // whose size it has
	Attachments     int               `json:"attachments"`
	Viewers         []ViewerInfo      `json:"viewers,omitempty"`    // who looks, the first MaxViewersInfo
	Left            *Left             `json:"left,omitempty"`       // absent while somebody looks, and where nobody has
	Command         *CommandInfo      `json:"command,omitempty"`    // absent where its shell does not say
	Frozen          bool              `json:"frozen,omitempty"`     // all its processes are stopped until it is thawed
	Cage            *Cage             `json:"cage,omitempty"`       // what it uses now, in answers to list and info; absent without a cage
	Degraded        bool              `json:"degraded,omitempty"`   // its screen is lost: only what it printed last is kept
	ExitCode        *int              `json:"exit_code,omitempty"`  // absent until exited
	Exit            *ExitRecord       `json:"exit,omitempty"`       // absent until exited
	Foreground      *Foreground       `json:"foreground,omitempty"` // absent if the system does not tell, and once it has ended
}

// CutArgv returns as much of argv as a SessionInfo may hold; an ellipsis stands
// for what was cut.
func CutArgv(argv []string) []string {
	room := MaxArgvInfo
	for i, a := range argv {
		if room -= len(a) + 1; room < 0 {
			return append(append([]string{}, argv[:i]...), "…")
		}
	}
	return argv
}

// maxSessionsBytes is about how much goes into one message that enumerates
// sessions. The largest SessionInfo there can be still fits behind that much.
const maxSessionsBytes = 256 << 10

// SplitSessions cuts a list into parts that fit into one message each, at
// least one part.
func SplitSessions(all []SessionInfo) [][]SessionInfo {
	parts := [][]SessionInfo{{}}
	size := 0
	for _, s := range all {
		b, _ := json.Marshal(s) // of strings, numbers and times: it cannot fail
		if size += len(b); size > maxSessionsBytes && len(parts[len(parts)-1]) > 0 {
			parts, size = append(parts, nil), len(b)
		}
		last := &parts[len(parts)-1]
		*last = append(*last, s)
	}
	return parts
}

// SpawnSpec says what to start. Its zero value starts nothing: Argv is
// required.
type SpawnSpec struct {
	Argv              []string          `json:"argv"`
	Cwd               string            `json:"cwd,omitempty"` // absolute; "" is the home directory
	Env               []string          `json:"env,omitempty"` // K=V, on top of the inherited environment
	ClearInheritedEnv bool              `json:"clear_inherited_env,omitempty"`
	Cols              int               `json:"cols,omitempty"` // 0 is 80
	Rows              int               `json:"rows,omitempty"` // 0 is 24
	Originator        string            `json:"originator,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	ScrollbackLines   int               `json:"scrollback_lines,omitempty"` // 0 is the supervisor's default
	SizePolicy        SizePolicy        `json:"size_policy,omitempty"`      // "" is latest
	Limits            Limits            `json:"limits,omitzero"`            // unsupported if the session can have no cage
}

// RespawnSpec says what to change when an exited session is started again. A
// field that is absent is as it was.
type RespawnSpec struct {
	Argv   []string          `json:"argv,omitempty"`
	Cwd    string            `json:"cwd,omitempty"`
	Env    []string          `json:"env,omitempty"`
	Cols   int               `json:"cols,omitempty"`
	Rows   int               `json:"rows,omitempty"`
	Labels map[string]string `json:"labels,omitzero"` // {} takes all away
	Limits Limits            `json:"limits,omitzero"`
}

// Apply returns old with the changes of r.
func (r RespawnSpec) Apply(old SpawnSpec) SpawnSpec {
	if len(r.Argv) > 0 {
		old.Argv = r.Argv
	}
	if len(r.Env) > 0 {
		old.Env = r.Env
	}
	if r.Labels != nil {
		old.Labels = r.Labels
	}
	old.Limits = r.Limits.Over(old.Limits)
	old.Cwd = cmp.Or(r.Cwd, old.Cwd)
	old.Cols = cmp.Or(r.Cols, old.Cols)
	old.Rows = cmp.Or(r.Rows, old.Rows)
	return old
}

// Size returns the size asked for, normalized.
func (s SpawnSpec) Size() Size { return Size{s.Cols, s.Rows}.Normalize() }

// Validate returns invalid_argument for what cannot be started anywhere.
func (s SpawnSpec) Validate() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return Errorf(CodeInvalidArgument, "argv is empty")
	}
	if len(s.Argv) > MaxArgs || len(s.Env) > MaxArgs {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("more than %d arguments or environment entries", MaxArgs))
	}
	total := len(s.Cwd) + len(s.Originator)
	for _, a := range s.Argv {
		total += len(a) + 1
		if strings.IndexByte(a, 0) >= 0 {
			return Errorf(CodeInvalidArgument, "argv contains a NUL byte")
		}
	}
	for _, e := range s.Env {
		total += len(e) + 1
		if i := strings.IndexByte(e, '='); i <= 0 || strings.IndexByte(e, 0) >= 0 {
			return Errorf(CodeInvalidArgument, "an environment entry is not K=V")
		}
	}
	if total > MaxSpawnBytes {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("argv and environment exceed %d bytes", MaxSpawnBytes))
	}
	if len(s.Cwd) > MaxCwdBytes || len(s.Originator) > 4*MaxIDLen {
		return Errorf(CodeLimitExceeded, "cwd or originator is too long")
	}
	if s.Cwd != "" && !strings.HasPrefix(s.Cwd, "/") && !filepath.IsAbs(s.Cwd) { // or a drive's, on Windows
		return Errorf(CodeInvalidArgument, fmt.Sprintf("cwd must be absolute, it is %.200q", s.Cwd))
	}
	if strings.IndexByte(s.Cwd, 0) >= 0 {
		return Errorf(CodeInvalidArgument, "cwd contains a NUL byte")
	}
	if err := s.SizePolicy.Validate(); err != nil {
		return err
	}
	if err := s.Limits.Validate(); err != nil {
		return err
	}
	return ValidateLabels(s.Labels)
}

// ValidateLabels returns limit_exceeded for labels over their bounds and
// invalid_argument for an empty key.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("more than %d labels", MaxLabels))
	}
	total := 0
	for k, v := range labels {
		if k == "" {
			return Errorf(CodeInvalidArgument, "a label has an empty key")
		}
		total += len(k) + len(v)
	}
	if total > MaxLabelBytes {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("labels exceed %d bytes", MaxLabelBytes))
	}
	return nil
}

// HasLabels reports whether labels has all of wanted, with these values.
func HasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Mode is how an attachment shares its session.
type Mode string

// The modes.
const (
	ModeShared    Mode = "shared"    // the default: types and resizes beside others
	ModeExclusive Mode = "exclusive" // alone; with steal, in place of who is there
	ModeReadOnly  Mode = "read_only" // looks, never types nor resizes
)

// Replay is how an attach brings its viewer up to date.
type Replay string

// The two answers to an attach.
const (
	ReplayExact    Replay = "exact"    // just the missing bytes follow, as output
	ReplaySnapshot Replay = "snapshot" // bytes that rebuild the screen follow, then output
)

// Resume is where an attachment goes on: in which life, at which output offset.
type Resume struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"`
}

// AttachSpec says how to view a session.
type AttachSpec struct {
	SessionID SessionID `json:"session_id"`
	Cols      int       `json:"cols,omitempty"` // 0 and 0: leave the size as it is
	Rows      int       `json:"rows,omitempty"`
	Mode      Mode      `json:"mode,omitempty"` // "" is shared
	Steal     bool      `json:"steal,omitempty"`
	Resume    *Resume   `json:"resume,omitempty"`
	Snapshot  bool      `json:"snapshot,omitempty"` // with Resume: a snapshot even if the ring has the offset
	// ScreenOnly, with Snapshot: without lines above the screen, for a terminal
	// that still has those which it was given.
	ScreenOnly bool   `json:"screen_only,omitempty"`
	History    *int   `json:"history,omitempty"` // lines above the screen in a snapshot; absent is 1,000
	Answers    bool   `json:"answers,omitempty"` // it answers what programs ask a terminal
	Writer     string `json:"writer,omitempty"`  // whose input this is; "" makes a new one
	// Attempt grows with each attach of a writer, so that one that was given up
	// and comes late does not end its successor; microseconds since 1970 will do.
	// 0 is never late.
	Attempt uint64 `json:"attempt,omitempty"`
	// Move counts how often proxies have passed this attempt on to one another. It is the
	// proxies' own, so that a client's count stays the client's.
	Move   uint64 `json:"move,omitempty"`
	Client string `json:"client,omitempty"` // a name for people, told in stolen
	Term   string `json:"term,omitempty"`   // the viewer's TERM
	// Env is the part of the viewer's environment that a session's programs may want
	// to follow, as K=V: where its ssh agent and its display are.
	Env   []string `json:"env,omitempty"`
	Typed bool     `json:"typed,omitempty"`  // it is told what is typed, by whomever; not of mode read_only
	IsTTY bool     `json:"is_tty,omitempty"` // the viewer is a terminal

	View       View        `json:"view,omitempty"`       // "" is raw; own needs Cols or Rows
	Pace       bool        `json:"pace,omitempty"`       // of an exclusive viewer: the child waits for it
	Appearance *Appearance `json:"appearance,omitempty"` // of the viewer's terminal
}

// OwnSize is the viewer's terminal's size, and whether it has said so.
func (a AttachSpec) OwnSize() (Size, bool) {
	return Size{a.Cols, a.Rows}.Normalize(), a.Cols != 0 || a.Rows != 0
}

// Validate checks what can be checked without the session.
func (a AttachSpec) Validate() error {
	if err := a.SessionID.Validate(); err != nil {
		return err
	}
	switch a.Mode {
	case "", ModeShared, ModeExclusive, ModeReadOnly:
	default:
		return Errorf(CodeInvalidArgument, fmt.Sprintf("mode must be shared, exclusive or read_only, it is %.40q", a.Mode))
	}
	switch a.View {
	case "", ViewRaw, ViewOwn:
	default:
		return Errorf(CodeInvalidArgument, fmt.Sprintf("view must be raw or own, it is %.40q", string(a.View)))
	}
	if a.Pace && a.Mode != ModeExclusive {
		return Errorf(CodeInvalidArgument, "only an exclusive attachment can have the child wait for it")
	}
	if a.Writer != "" {
		if err := ValidateWriter(a.Writer); err != nil {
			return err
		}
	}
	if a.Appearance != nil {
		if err := a.Appearance.Validate(); err != nil {
			return err
		}
	}
	if len(a.Client) > 4*MaxIDLen || len(a.Term) > 4*MaxIDLen {
		return Errorf(CodeLimitExceeded, "client or term is too long")
	}
	if a.Typed && a.Mode == ModeReadOnly {
		return Errorf(CodeInvalidArgument, "who may not type is not told what is typed")
	}
	return ValidateViewerEnv(a.Env)
}

// Limits on a viewer's environment.
const (
	MaxViewerEnv      = 64
	MaxViewerEnvBytes = 16 << 10
)

// ValidateViewerEnv returns invalid_argument for what is not K=V, and limit_exceeded
// for more than may be held.
func ValidateViewerEnv(env []string) error {
	total := 0
	for _, e := range env {
		total += len(e)
		if i := strings.IndexByte(e, '='); i <= 0 || strings.IndexByte(e, 0) >= 0 {
			return Errorf(CodeInvalidArgument, "an environment entry is not K=V")
		}
	}
	if len(env) > MaxViewerEnv || total > MaxViewerEnvBytes {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("more than %d entries or %d bytes of environment", MaxViewerEnv, MaxViewerEnvBytes))
	}
	return nil
}

// AttachInfo is the answer to an attach.
type AttachInfo struct {
	Session       SessionInfo `json:"session"`
	Replay        Replay      `json:"replay"`
	Offset        uint64      `json:"offset"`         // of the first output byte that follows
	BytesMissed   uint64      `json:"bytes_missed"`   // printed, but neither sent nor still kept
	SnapshotBytes int         `json:"snapshot_bytes"` // how many bytes of snapshot come first
	View          bool        `json:"view,omitempty"` // the snapshot is of a view of the viewer's own; views follow
	Writer        string      `json:"writer"`         // the name this attachment's input goes by
	InputOffset   uint64      `json:"input_offset"`   // how far this writer's input was accepted
}

// ProcessStatus is what `status` says of one of the two processes.
type ProcessStatus struct {
	PID      int           `json:"pid"`
	Version  string        `json:"version"`
	Protocol VersionRange  `json:"protocol"`
	Instance Instance      `json:"instance"`
	Uptime   float64       `json:"uptime"`             // seconds
	Sessions int           `json:"sessions"`           // not ended
	Clients  int           `json:"clients"`            // proxies of a supervisor, clients of a proxy
	Upgrades int           `json:"upgrades,omitempty"` // of a supervisor: how often it became another program
	Keeper   *KeeperStatus `json:"keeper,omitempty"`   // of a supervisor that has one
	Cages    *CagesStatus  `json:"cages,omitempty"`    // of a supervisor on Linux
}

// KeeperStatus is what a supervisor says of the process that holds what must
// outlive it.
type KeeperStatus struct {
	PID      int    `json:"pid"`
	Sessions int    `json:"sessions"`       // that it holds, of those that live or are remembered
	Starts   int    `json:"starts"`         // of supervisors, with this one
	Last     string `json:"last,omitempty"` // how the one before ended, for people
	Lost     int    `json:"lost,omitempty"` // keepers that this supervisor has outlived
}

// EventKind is what happened. Unknown kinds are ignored.
type EventKind string

// The events.
const (
	EventCreated   EventKind = "created"   // a session runs
	EventExited    EventKind = "exited"    // a session has its exit record
	EventForgotten EventKind = "forgotten" // an exit record is gone
	EventResized   EventKind = "resized"   // a session has another size
	EventAttached  EventKind = "attached"  // somebody looks
	EventDetached  EventKind = "detached"  // somebody went
	EventMissed    EventKind = "missed"    // the subscriber was too slow; so many are lost to it

	EventTitle        EventKind = "title"        // its program calls its window otherwise
	EventLabels       EventKind = "labels"       // somebody has changed them
	EventCwd          EventKind = "cwd"          // it says that it is in another directory
	EventBell         EventKind = "bell"         // it rang, once or more
	EventNotification EventKind = "notification" // it has something to tell its user

	EventFrozen EventKind = "frozen" // somebody has stopped all its processes
	EventThawed EventKind = "thawed" // they run on

	EventDegraded EventKind = "degraded" // its screen is lost, by a mistake of ours

	EventOutputIdle      EventKind = "output_idle"      // it has printed, and then nothing for OutputIdleMS
	EventCommandStarted  EventKind = "command_started"  // its shell runs a command
	EventCommandFinished EventKind = "command_finished" // the command has ended
)
