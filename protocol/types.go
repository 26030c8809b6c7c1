package protocol

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the values that a peer may send.
const (
	MaxIDLen      = 64        // session ids, pane ids, writers
	MaxArgs       = 4096      // argv entries, environment entries
	MaxLabels     = 64        // labels of a session
	MaxSecretEnv  = 64        // names of secret variables
	MaxSecretName = 256       // bytes of each of these names
	MaxLabelBytes = 16 << 10  // all keys and values of a session's labels together
	MaxSpawnBytes = 512 << 10 // argv, environment and cwd together
	MaxCwdBytes   = 4 << 10   // PATH_MAX of Linux
	MaxArgvInfo   = 32 << 10  // argv in a SessionInfo; CutArgv cuts a longer one
	MaxCols       = 2000      // more than any real display has; limits the cost of a screen
	MaxRows       = 1000
	DefaultCols   = 80 // the size of terminals since the VT100
	DefaultRows   = 24
)

// A SessionID identifies a session. It has 1 to 64 of the characters [a-zA-Z0-9_-]. The client
// chooses it; otherwise Holdfast does.
type SessionID string

// Validate returns invalid_argument unless the id has this form.
func (id SessionID) Validate() error { return validateID("session id", string(id)) }

// ValidateWriter returns invalid_argument unless w has the form of an id.
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

func validateID(kind, s string) error {
	if ValidID(s) {
		return nil
	}
	return Errorf(CodeInvalidArgument, "%s must be 1 to %d of [a-zA-Z0-9_-], but it is %.80q", kind, MaxIDLen, s)
}

// An Instance distinguishes two sessions or two processes that have the same id one after the
// other.
type Instance string

// NewInstance returns an Instance of 64 random bits, as 16 hexadecimal digits.
func NewInstance() Instance { return Instance(NewToken(8)) }

// NewToken returns n random bytes of the system's generator in hexadecimal digits.
func NewToken(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // crypto/rand ends the process instead of returning an error
	return hex.EncodeToString(b)
}

// Size is a terminal's size in character cells.
type Size struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Normalize replaces columns of zero or less by 80 and rows of zero or less by 24, and reduces both
// to their maximum.
func (s Size) Normalize() Size {
	return Size{
		Cols: min(cmp.Or(max(s.Cols, 0), DefaultCols), MaxCols),
		Rows: min(cmp.Or(max(s.Rows, 0), DefaultRows), MaxRows),
	}
}

// Validate returns an error if a number is negative.
func (s Size) Validate() error {
	if s.Cols < 0 || s.Rows < 0 {
		return Errorf(CodeInvalidArgument, "cols and rows must not be negative")
	}
	return nil
}

func (s Size) String() string { return fmt.Sprintf("%dx%d", s.Cols, s.Rows) }

// State is the state of a session.
//
//	starting → running → draining → exited → forgotten
//	                                 lost  → forgotten
//
// A session is lost if the machine has lost power, or all processes that held it were killed, and
// its screen was stored on disk.
type State string

// The states, in the order in which a session goes through them.
const (
	StateStarting  State = "starting"  // the child is being started
	StateRunning   State = "running"   // the child runs
	StateDraining  State = "draining"  // the child has ended, and its last output is being read
	StateExited    State = "exited"    // the session has its exit record
	StateLost      State = "lost"      // the child is gone with the machine; the last screen that was stored is kept
	StateForgotten State = "forgotten" // the session and its exit record are deleted
)

// Lost describes the remains of a session after its machine has lost power.
type Lost struct {
	Offset uint64    `json:"offset"`  // the screen is the one at this output offset
	SeenAt time.Time `json:"seen_at"` // when the session was stored last
	Cwd    string    `json:"cwd"`     // directory in which the child was then
}

// Outcome tells how a child ended.
type Outcome string

// The outcomes.
const (
	OutcomeNatural Outcome = "natural" // without a request
	OutcomeSoft    Outcome = "soft"    // by the soft signal, within the grace
	OutcomeHard    Outcome = "hard"    // by SIGKILL, after the grace
)

// Reason tells why a session ended.
type Reason string

// The reasons that Holdfast gives. A client may give its own.
const (
	ReasonExited        Reason = "exited"         // the child ended by itself
	ReasonUserRequested Reason = "user_requested" // a client ended the session
	ReasonIdleTimeout   Reason = "idle_timeout"   // the session was idle for longer than its idle timeout
	ReasonShutdown      Reason = "shutdown"       // the supervisor was stopped
	ReasonWaitError     Reason = "wait_error"     // the child's exit status could not be read
	ReasonLost          Reason = "lost"           // the machine lost power, or all processes that held the session were killed
)

// MaxReasonLen is the largest length of a client's own reason in bytes.
const MaxReasonLen = 200

// An ExitRecord tells how a session's child ended.
type ExitRecord struct {
	ExitCode  int       `json:"exit_code"`        // 0 to 255; 128+n after signal n; -1: unknown
	Signal    string    `json:"signal,omitempty"` // such as "SIGTERM", if a signal ended the child
	Outcome   Outcome   `json:"outcome"`
	Reason    Reason    `json:"reason"`
	TimedOut  bool      `json:"timed_out"`
	LastLines []string  `json:"last_lines"` // the last lines that are not empty, at most LastLines
	Tail      []string  `json:"tail"`       // the last lines, at most TailLines
	StartedAt time.Time `json:"started_at"`
	ExitedAt  time.Time `json:"exited_at"`
	Survivors []int     `json:"survivors,omitempty"` // pids of processes that no signal has ended

	// Each of the following fields is absent if its value is not known.
	EndedBy     string    `json:"ended_by,omitempty"`      // name of the client that requested the end or sent the signal
	EndedByUser string    `json:"ended_by_user,omitempty"` // user of that client, if a policy tells it
	Cwd         string    `json:"cwd,omitempty"`           // working directory of the child when it was last read
	OOM         OOMSource `json:"oom,omitempty"`           // set if the child was killed because of a lack of memory
	CoreDumped  bool      `json:"core_dumped,omitempty"`
	Usage       Usage     `json:"usage,omitzero"`
	Cage        *Cage     `json:"cage,omitempty"` // resources that all processes of the session used, and the limits that they reached
}

// OOMSource tells how it is known that a child was killed because of a lack of memory.
type OOMSource string

// The sources. The kernel's log names the killed process. The counter of a control group is less
// precise: one of the group's processes was killed at about the time when the child was killed.
const (
	OOMKernelLog OOMSource = "kernel_log"
	OOMCgroup    OOMSource = "cgroup"
)

// Usage contains the resources used by a child and by those descendants that it waited for.
type Usage struct {
	UserMS      int64  `json:"user_ms"`       // processor time
	SystemMS    int64  `json:"system_ms"`     // processor time of the kernel for these processes
	MaxRSSBytes uint64 `json:"max_rss_bytes"` // largest memory of one of these processes; 0 if it is not known
	MinorFaults uint64 `json:"minor_faults"`
	MajorFaults uint64 `json:"major_faults"` // page faults that required a read
}

// Asker tells which client requests something, and for which user.
type Asker struct {
	By     string `json:"by,omitempty"`      // name that the client has given itself
	ByUser string `json:"by_user,omitempty"` // user of the client, if a policy tells it
}

// MaxAsker is the largest length of each name in an Asker in bytes. Cut shortens longer names.
const MaxAsker = 256

// Cut returns a with names of at most MaxAsker bytes that are valid UTF-8.
func (a Asker) Cut() Asker {
	cut := func(s string) string { return strings.ToValidUTF8(s[:min(len(s), MaxAsker)], "") }
	return Asker{cut(a.By), cut(a.ByUser)}
}

// Limits of an exit record (numbers of lines, and bytes of one line), and of the texts and the lines
// that a program may cause Holdfast to store or send.
const (
	LastLines      = 5
	TailLines      = 20
	MaxTailLine    = 1 << 10   // bytes
	MaxTitle       = 1 << 10   // bytes of a title, or of a notification's body
	MaxScrollback  = 1_000_000 // lines above a screen; a larger request is reduced to it
	MaxScreenBytes = 900 << 10 // lines or cells in one reply
)

// Labels that the proxy interprets. The supervisor interprets none.
const (
	LabelPane        = "pane_id"
	LabelTitle       = "title"
	LabelDescription = "description"
	LabelParentAgent = "parent_agent"
	LabelTask        = "task_id"
	LabelWorkspace   = "workspace_id"
	LabelUser        = "user_id"
	// LabelIdleTimeout is the time without input, output or resize after which the session ends,
	// as a duration of Go such as "90m"; "0" means never. It overrides the proxy's idle_timeout. A
	// frozen session is not idle, and its idle time begins again when it is thawed.
	LabelIdleTimeout = "idle_timeout"
	// Limits for a spawn that does not name them, in the form of LimitField.Parse. They override
	// the proxy's settings.
	LabelMemoryMax  = "memory_max"
	LabelMemoryHigh = "memory_high"
	LabelPIDsMax    = "pids_max"
	LabelCPUMax     = "cpu_max"
	LabelCPUWeight  = "cpu_weight"
	// LabelDurable is a Durable for a spawn that does not name one.
	LabelDurable = "durable"
	// LabelRecord is "true" if the proxy must record the session, and "false" if it must not. It overrides
	// the proxy's setting recordings_sessions.
	LabelRecord = "record"
)

// Foreground describes the process that has a session's terminal at the time of the request. The
// proxy adds it; the link never carries it.
type Foreground struct {
	PID      int    `json:"pid"`                // leader of the terminal's foreground process group
	Name     string `json:"name,omitempty"`     // name of the process, which the process itself can choose
	Cwd      string `json:"cwd,omitempty"`      // working directory of the process
	Children bool   `json:"children,omitempty"` // the session's child has children of its own; false if that is not known
	Stopped  bool   `json:"stopped,omitempty"`  // the session's child is stopped; SIGCONT continues it
	Reads    bool   `json:"reads,omitempty"`    // in a reply to info: a process of the group waits in a read of the terminal; false if that is not known
}

// SessionInfo describes a session at one moment.
type SessionInfo struct {
	ID              SessionID         `json:"id"`
	Instance        Instance          `json:"instance"`
	PID             int               `json:"pid"`
	State           State             `json:"state"`
	Size            Size              `json:"size"`
	Argv            []string          `json:"argv"`
	Cwd             string            `json:"cwd"`                   // directory in which the session was started
	CurrentCwd      string            `json:"current_cwd,omitempty"` // present directory, if the program has reported it
	Title           string            `json:"title,omitempty"`       // title of the window, if the program has set it
	Labels          map[string]string `json:"labels,omitempty"`
	Originator      string            `json:"originator,omitempty"`
	CreatedAt       time.Time         `json:"created_at"`
	LastIOAt        time.Time         `json:"last_io_at"`    // time of the last read, write or resize
	OutputOffset    uint64            `json:"output_offset"` // number of bytes of output so far
	RingStart       uint64            `json:"ring_start"`    // oldest output offset that is still kept
	ScrollbackLines int               `json:"scrollback_lines"`
	SizePolicy      SizePolicy        `json:"size_policy,omitempty"` // policy that determines the size
	Attachments     int               `json:"attachments"`
	Viewers         []ViewerInfo      `json:"viewers,omitempty"`    // the first MaxViewersInfo viewers
	Left            *Left             `json:"left,omitempty"`       // absent while there is a viewer, and if there never was one
	Command         *CommandInfo      `json:"command,omitempty"`    // absent if the shell does not report its commands
	Unmasked        []string          `json:"unmasked,omitempty"`   // secret variables with values that are not masked: shorter than 4 bytes, not set, or too many
	Frozen          bool              `json:"frozen,omitempty"`     // all processes are stopped until the session is thawed
	Cage            *Cage             `json:"cage,omitempty"`       // resources in use, in replies to list and info; absent without a cage
	Degraded        bool              `json:"degraded,omitempty"`   // the screen is lost, and only the last output is kept
	ExitCode        *int              `json:"exit_code,omitempty"`  // absent until the state is exited
	Exit            *ExitRecord       `json:"exit,omitempty"`       // absent until the state is exited
	Lost            *Lost             `json:"lost,omitempty"`       // absent unless the state is lost
	Program         *ProgramStatus    `json:"program,omitempty"`    // of the reports that hold, the one that needs a person most; absent if there is none
	Foreground      *Foreground       `json:"foreground,omitempty"` // absent if the system does not tell, and after the session has ended
}

// CutArgv returns the first entries of argv that fit into MaxArgvInfo bytes. If it leaves entries
// out, the last entry is an ellipsis.
func CutArgv(argv []string) []string {
	room := MaxArgvInfo
	for i, a := range argv {
		if room -= len(a) + 1; room < 0 {
			return append(append([]string{}, argv[:i]...), "…")
		}
	}
	return argv
}

// maxSessionsBytes is the size of the list in one message, in bytes. One session of the largest
// possible size still fits into the frame after so many bytes.
const maxSessionsBytes = 256 << 10

// SplitSessions yields a list in parts that each fit into one message, with true if more parts follow. It yields
// at least one part. Each part is found when it is asked for, so that the peer does not wait for all of a long
// list before it receives the first message.
func SplitSessions(all []SessionInfo) iter.Seq2[[]SessionInfo, bool] {
	if all == nil {
		all = []SessionInfo{} // a list in a message is never null
	}
	return func(yield func(part []SessionInfo, more bool) bool) {
		begin, size := 0, 0
		for i, s := range all {
			b, _ := json.Marshal(s) // a struct of strings, numbers and times can always be encoded
			if size += len(b); size > maxSessionsBytes && i > begin {
				if !yield(all[begin:i:i], true) {
					return
				}
				begin, size = i, len(b)
			}
		}
		yield(all[begin:], false)
	}
}

// SpawnSpec describes a session to start. Argv must not be empty.
type SpawnSpec struct {
	Argv              []string          `json:"argv,omitzero"` // absent: the login shell, in a spawn of the api; must not be []
	Cwd               string            `json:"cwd,omitempty"` // must be absolute; "": the home directory
	Env               []string          `json:"env,omitempty"` // K=V, added to the inherited environment
	ClearInheritedEnv bool              `json:"clear_inherited_env,omitempty"`
	Cols              int               `json:"cols,omitempty"` // 0: 80
	Rows              int               `json:"rows,omitempty"` // 0: 24
	Originator        string            `json:"originator,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	ScrollbackLines   int               `json:"scrollback_lines,omitempty"` // 0: the supervisor's default
	SizePolicy        SizePolicy        `json:"size_policy,omitempty"`      // "": latest
	Limits            Limits            `json:"limits,omitzero"`            // the error is unsupported if the session cannot have a cage
	Durable           Durable           `json:"durable,omitempty"`          // "": the supervisor's setting
	// SecretEnv are names of variables, which may contain *. Their values are masked in what is
	// stored of the session, and in replies that are not the live screen of a viewer.
	SecretEnv []string `json:"secret_env,omitempty"`
	// Unattended tells that no viewer will attach at once. Then the first queries of the child do not
	// wait for a viewer to answer them, and a child that prints much does not wait for a viewer to receive it.
	Unattended bool `json:"unattended,omitempty"`
	// CellWidth and CellHeight are the size of a character cell of the viewer that will attach, in pixels. If the session
	// received the size with that viewer only, the child would receive SIGWINCH just after its start.
	CellWidth  int `json:"cell_width,omitempty"`
	CellHeight int `json:"cell_height,omitempty"`
}

// Durable tells how much of a session is stored on disk, so that it outlives the machine.
type Durable string

// The values of Durable.
const (
	DurableOff    Durable = "off"    // nothing
	DurableScreen Durable = "screen" // the last screen with its history
	DurableFull   Durable = "full"   // all output
)

// Validate returns invalid_argument if d is neither a value of Durable nor empty.
func (d Durable) Validate() error {
	switch d {
	case "", DurableOff, DurableScreen, DurableFull:
		return nil
	}
	return Errorf(CodeInvalidArgument, "durable must be off, screen or full, but it is %.40q", string(d))
}

// RespawnSpec describes the changes with which an exited session is started again. Absent fields
// keep their values.
type RespawnSpec struct {
	Argv   []string          `json:"argv,omitempty"`
	Cwd    string            `json:"cwd,omitempty"`
	Env    []string          `json:"env,omitempty"`
	Cols   int               `json:"cols,omitempty"`
	Rows   int               `json:"rows,omitempty"`
	Labels map[string]string `json:"labels,omitzero"` // {} removes all labels
	Limits Limits            `json:"limits,omitzero"`
	// KeepScreen shows the lines of the old screen and its history above the new output, with a
	// line between.
	KeepScreen bool `json:"keep_screen,omitempty"`
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
	old.Unattended = false // the client that starts the session again may attach
	return old
}

// Validate returns invalid_argument if a text of r is not UTF-8: see SpawnSpec.ValidateText. Whether the changed session
// can be started is checked after Apply.
func (r RespawnSpec) Validate() error { return validateText(r.Argv, r.Cwd, r.Env) }

// Appearance returns the known part of the appearance of the viewer's terminal.
func (s SpawnSpec) Appearance() Appearance {
	return Appearance{CellWidth: s.CellWidth, CellHeight: s.CellHeight}
}

// Size returns the requested size, normalized.
func (s SpawnSpec) Size() Size { return Size{s.Cols, s.Rows}.Normalize() }

// Validate returns an error if the session could not be started on any system.
func (s SpawnSpec) Validate() error {
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return Errorf(CodeInvalidArgument, "argv must not be empty")
	}
	if len(s.Argv) > MaxArgs || len(s.Env) > MaxArgs {
		return TooLarge("argv and env must have at most %d entries each", MaxArgs)
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
			return Errorf(CodeInvalidArgument, "each entry of env must be K=V")
		}
	}
	if total > MaxSpawnBytes {
		return TooLarge("argv, env, cwd and originator must have at most %d bytes together, but they have %d", MaxSpawnBytes, total)
	}
	if len(s.Cwd) > MaxCwdBytes || len(s.Originator) > 4*MaxIDLen {
		return TooLarge("cwd must have at most %d bytes, and originator at most %d", MaxCwdBytes, 4*MaxIDLen)
	}
	if s.Cwd != "" && !strings.HasPrefix(s.Cwd, "/") && !filepath.IsAbs(s.Cwd) { // IsAbs accepts paths with a drive on Windows
		return Errorf(CodeInvalidArgument, "cwd must be absolute, but it is %.200q", s.Cwd)
	}
	if strings.IndexByte(s.Cwd, 0) >= 0 {
		return Errorf(CodeInvalidArgument, "cwd contains a NUL byte")
	}
	if err := s.ValidateText(); err != nil {
		return err
	}
	if err := s.SizePolicy.Validate(); err != nil {
		return err
	}
	if err := (Size{s.Cols, s.Rows}).Validate(); err != nil {
		return err
	}
	if err := s.Appearance().Validate(); err != nil {
		return err
	}
	if err := s.Limits.Validate(); err != nil {
		return err
	}
	if err := s.Durable.Validate(); err != nil {
		return err
	}
	if err := ValidateSecretEnv(s.SecretEnv); err != nil {
		return err
	}
	return ValidateLabels(s.Labels)
}

// ValidateText returns invalid_argument if an argument, the directory or a variable is not UTF-8. A client must call it
// before it encodes the request, because JSON replaces each byte that is not UTF-8 by U+FFFD, so that the command would
// act on another file, and the supervisor could not notice that.
func (s SpawnSpec) ValidateText() error { return validateText(s.Argv, s.Cwd, s.Env) }

func validateText(argv []string, cwd string, env []string) error {
	for i, arg := range argv {
		if !utf8.ValidString(arg) {
			return Errorf(CodeInvalidArgument, "argument %d is not UTF-8 text, and cannot be passed", i)
		}
	}
	if !utf8.ValidString(cwd) {
		return Errorf(CodeInvalidArgument, "cwd is not UTF-8 text, and cannot be passed: %.200q", cwd)
	}
	return validateEnvText(env)
}

// validateEnvText returns invalid_argument if a variable is not UTF-8. The error does not contain the value, which may be
// a secret.
func validateEnvText(env []string) error {
	for i, e := range env {
		if utf8.ValidString(e) {
			continue
		}
		if name, _, ok := strings.Cut(e, "="); ok && utf8.ValidString(name) {
			return Errorf(CodeInvalidArgument, "the value of the variable %.80q is not UTF-8 text, and cannot be passed", name)
		}
		return Errorf(CodeInvalidArgument, "entry %d of env is not UTF-8 text, and cannot be passed", i)
	}
	return nil
}

// ValidateSecretEnv returns an error if there are too many names of variables, or one is invalid.
func ValidateSecretEnv(names []string) error {
	if len(names) > MaxSecretEnv {
		return TooLarge("at most %d names of secret variables are allowed, but there are %d", MaxSecretEnv, len(names))
	}
	for _, n := range names {
		if n == "" || len(n) > MaxSecretName || strings.ContainsAny(n, "=?[]\\/\x00") {
			return Errorf(CodeInvalidArgument, "the name of a secret variable must have 1 to %d bytes without = ? [ ] / and \\, but it is %.80q", MaxSecretName, n)
		}
	}
	return nil
}

// ValidateLabels returns limit_exceeded if there are too many labels or bytes, and
// invalid_argument if a key is empty.
func ValidateLabels(labels map[string]string) error {
	if len(labels) > MaxLabels {
		return TooLarge("a session must have at most %d labels, but there are %d", MaxLabels, len(labels))
	}
	total := 0
	for k, v := range labels {
		if k == "" {
			return Errorf(CodeInvalidArgument, "the key of a label must not be empty")
		}
		total += len(k) + len(v)
	}
	if total > MaxLabelBytes {
		return TooLarge("labels must have at most %d bytes together, but they have %d", MaxLabelBytes, total)
	}
	return nil
}

// HasLabels reports whether labels contains all of wanted with equal values.
func HasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Mode tells how an attachment shares its session with others.
type Mode string

// The modes.
const (
	ModeShared    Mode = "shared"    // the default: may write and resize, as others may
	ModeExclusive Mode = "exclusive" // no other attachment is allowed; with steal, the others are detached
	ModeReadOnly  Mode = "read_only" // must not write or resize
)

// Replay tells how an attach brings its viewer up to date.
type Replay string

// The replays.
const (
	ReplayExact    Replay = "exact"    // only the missing output follows
	ReplaySnapshot Replay = "snapshot" // a snapshot that rebuilds the screen follows, and then output
)

// Resume is the position at which an attachment continues: the instance and the output offset.
type Resume struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"`
}

// AttachSpec requests an attachment to a session.
type AttachSpec struct {
	SessionID SessionID `json:"session_id"`
	Cols      int       `json:"cols,omitempty"` // 0 for both: leave the session's size unchanged
	Rows      int       `json:"rows,omitempty"`
	Mode      Mode      `json:"mode,omitempty"` // "": shared
	Steal     bool      `json:"steal,omitempty"`
	Detach    bool      `json:"detach,omitempty"` // with Steal: the client only ends the others, and leaves; stolen tells them so
	Resume    *Resume   `json:"resume,omitempty"`
	Snapshot  bool      `json:"snapshot,omitempty"` // with Resume: send a snapshot even if the ring has the output
	// ScreenOnly, with Snapshot, leaves out the lines above the screen, because the viewer's
	// terminal still has them.
	ScreenOnly bool   `json:"screen_only,omitempty"`
	History    *int   `json:"history,omitempty"` // lines above the screen in a snapshot; absent: DefaultHistory
	Answers    bool   `json:"answers,omitempty"` // the viewer answers terminal queries of programs
	Writer     string `json:"writer,omitempty"`  // writer of the attachment's input; "": a new writer
	// Attempt must grow with each attach of a writer, so that a late attach that the client has
	// given up does not replace its successor. Microseconds since 1970 are suitable. An attach
	// with 0 is never considered late.
	Attempt uint64 `json:"attempt,omitempty"`
	// Move counts how often one proxy has handed this attempt to another. Only proxies set it, so
	// that a client may count its attempts as it likes.
	Move   uint64 `json:"move,omitempty"`
	Client string `json:"client,omitempty"` // name of the client for people; other viewers see it in stolen
	Term   string `json:"term,omitempty"`   // TERM of the viewer
	// Env contains those variables of the viewer's environment, as K=V, that programs of the
	// session may want to use, such as the addresses of the ssh agent and of the display.
	Env   []string `json:"env,omitempty"`
	Typed bool     `json:"typed,omitempty"`  // the viewer receives the input of all writers; not allowed with mode read_only
	IsTTY bool     `json:"is_tty,omitempty"` // the viewer is a terminal
	Mask  bool     `json:"mask,omitempty"`   // asterisks replace secrets, for viewers that store or pass on the output; not allowed with view own

	View       View        `json:"view,omitempty"`       // "": raw; own requires Cols or Rows
	Pace       bool        `json:"pace,omitempty"`       // the child waits for this viewer; requires mode exclusive
	Appearance *Appearance `json:"appearance,omitempty"` // properties of the viewer's terminal
}

// OwnSize returns the size of the viewer's terminal, and whether the viewer has sent it.
func (a AttachSpec) OwnSize() (Size, bool) {
	return Size{a.Cols, a.Rows}.Normalize(), a.Cols != 0 || a.Rows != 0
}

// Validate returns an error if the request is wrong for every session.
func (a AttachSpec) Validate() error {
	if err := a.SessionID.Validate(); err != nil {
		return err
	}
	if err := (Size{a.Cols, a.Rows}).Validate(); err != nil {
		return err
	}
	switch a.Mode {
	case "", ModeShared, ModeExclusive, ModeReadOnly:
	default:
		return Errorf(CodeInvalidArgument, "mode must be shared, exclusive or read_only, but it is %.40q", a.Mode)
	}
	switch a.View {
	case "", ViewRaw, ViewOwn:
	default:
		return Errorf(CodeInvalidArgument, "view must be raw or own, but it is %.40q", string(a.View))
	}
	if a.Pace && a.Mode != ModeExclusive {
		return Errorf(CodeInvalidArgument, "pace requires mode exclusive")
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
		return TooLarge("client and term must have at most %d bytes each", 4*MaxIDLen)
	}
	if a.Typed && a.Mode == ModeReadOnly {
		return Errorf(CodeInvalidArgument, "typed is not allowed with mode read_only")
	}
	if a.Mask && a.View == ViewOwn {
		return Errorf(CodeInvalidArgument, "mask is not allowed with view own")
	}
	return ValidateViewerEnv(a.Env)
}

// Limits of a viewer's environment.
const (
	MaxViewerEnv      = 64
	MaxViewerEnvBytes = 16 << 10
)

// ValidateViewerEnv returns invalid_argument if an entry is not K=V or not UTF-8, and limit_exceeded if there are
// too many entries or bytes.
func ValidateViewerEnv(env []string) error {
	total := 0
	for _, e := range env {
		total += len(e)
		if i := strings.IndexByte(e, '='); i <= 0 || strings.IndexByte(e, 0) >= 0 {
			return Errorf(CodeInvalidArgument, "each entry of env must be K=V")
		}
	}
	if len(env) > MaxViewerEnv || total > MaxViewerEnvBytes {
		return TooLarge("env must have at most %d entries and %d bytes", MaxViewerEnv, MaxViewerEnvBytes)
	}
	return validateEnvText(env)
}

// AttachInfo is the reply to an attach.
type AttachInfo struct {
	Session       SessionInfo `json:"session"`
	Replay        Replay      `json:"replay"`
	Offset        uint64      `json:"offset"`         // offset of the first byte of output that follows
	BytesMissed   uint64      `json:"bytes_missed"`   // bytes of output that were not sent and are no longer kept
	SnapshotBytes int         `json:"snapshot_bytes"` // size of the snapshot that is sent first
	View          bool        `json:"view,omitempty"` // the snapshot shows a view of the viewer's own; further views follow
	Writer        string      `json:"writer"`         // writer of this attachment's input
	InputOffset   uint64      `json:"input_offset"`   // input offset up to which the writer's input was accepted
}

// ProcessStatus is the part of a status that describes the supervisor or a proxy.
type ProcessStatus struct {
	PID       int              `json:"pid"`
	Version   string           `json:"version"`
	Protocol  VersionRange     `json:"protocol"`
	Instance  Instance         `json:"instance"`
	Uptime    float64          `json:"uptime"`              // seconds
	Sessions  int              `json:"sessions"`            // number of sessions that have not ended
	Clients   int              `json:"clients"`             // number of proxies of a supervisor, or of clients of a proxy
	Upgrades  int              `json:"upgrades,omitempty"`  // for a supervisor: how often it has executed another program
	Keeper    *KeeperStatus    `json:"keeper,omitempty"`    // for a supervisor with a keeper
	Cages     *CagesStatus     `json:"cages,omitempty"`     // for a supervisor on Linux
	Recording *RecordingStatus `json:"recording,omitempty"` // for a supervisor: sessions that it cannot store or read; nil if there is none
}

// RecordingStatus describes the sessions that the supervisor cannot store on disk, or cannot read.
type RecordingStatus struct {
	Failing int    `json:"failing"`          // number of sessions that cannot be stored
	Error   string `json:"error"`            // why the last of them was not stored, for people; empty if all are stored
	Sealed  int    `json:"sealed,omitempty"` // number of lost sessions that are sealed and whose key is not available
}

// KeeperStatus describes the keeper of a supervisor.
type KeeperStatus struct {
	PID      int    `json:"pid"`
	Sessions int    `json:"sessions"`       // number of sessions in its vault, including exited ones
	Starts   int    `json:"starts"`         // number of supervisors that it has started, including this one
	Last     string `json:"last,omitempty"` // how the previous supervisor ended, for people
	Lost     int    `json:"lost,omitempty"` // number of keepers that have died while this supervisor ran
}

// EventKind is the kind of an event. A receiver must ignore unknown kinds.
type EventKind string

// The events.
const (
	EventCreated   EventKind = "created"   // a session was started
	EventExited    EventKind = "exited"    // a session has got its exit record
	EventForgotten EventKind = "forgotten" // an exit record was deleted
	EventResized   EventKind = "resized"   // the size of a session has changed
	EventAttached  EventKind = "attached"  // a viewer has attached
	EventDetached  EventKind = "detached"  // a viewer has detached
	EventMissed    EventKind = "missed"    // events were dropped because the subscriber was too slow

	EventTitle        EventKind = "title"        // the program has changed the title of its window
	EventLabels       EventKind = "labels"       // a client has changed the labels
	EventCwd          EventKind = "cwd"          // the program has reported another working directory
	EventBell         EventKind = "bell"         // the program has rung the bell, once or more
	EventNotification EventKind = "notification" // the program has sent a notification to its user

	EventFrozen EventKind = "frozen" // all processes of the session were stopped
	EventThawed EventKind = "thawed" // the processes of the session continue

	EventDegraded EventKind = "degraded" // the screen of the session is lost because of an error in Holdfast

	EventRecordingFailed  EventKind = "recording_failed"  // the session cannot be stored on disk; it continues
	EventRecordingResumed EventKind = "recording_resumed" // the session is stored again

	EventOutputIdle      EventKind = "output_idle"      // after output, the program has printed nothing for OutputIdleMS
	EventCommandStarted  EventKind = "command_started"  // the shell has started a command
	EventCommandFinished EventKind = "command_finished" // a command of the shell has ended
	EventProgramStatus   EventKind = "program_status"   // the program has reported another status
)
