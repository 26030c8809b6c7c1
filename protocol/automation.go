package protocol

import (
	"regexp"
	"time"
)

// ViewerInfo describes a viewer of a session.
type ViewerInfo struct {
	Client string    `json:"client,omitempty"` // name that the client has given itself
	Mode   Mode      `json:"mode"`
	Since  time.Time `json:"since"`
	Window Size      `json:"window,omitzero"` // size of the viewer's terminal, if the viewer has sent it
}

// MaxViewersInfo is the largest number of viewers in a SessionInfo.
const MaxViewersInfo = 8

// Left tells when a session's last viewer left, and the position of the session at that
// time. A viewer that may not write does not count.
type Left struct {
	At     time.Time `json:"at"`
	Offset uint64    `json:"offset"` // output offset at that time
	Line   uint64    `json:"line"`   // number of the first line that was incomplete at that time, as history numbers lines
}

// AwayInfo tells the events in a session since its last viewer left, or since its
// start if it never had a viewer. While a session has viewers, AwayInfo describes the time
// before the first of them attached.
type AwayInfo struct {
	Instance      Instance       `json:"instance"`
	Left          *Left          `json:"left,omitempty"`   // absent if the session never had a viewer
	BackAt        time.Time      `json:"back_at,omitzero"` // when a viewer attached again; absent while there is none
	Printed       uint64         `json:"printed"`          // bytes of output in that time
	Bells         int            `json:"bells,omitempty"`
	Notifications []Notification `json:"notifications,omitempty"` // the last MaxAway notifications
	Commands      []CommandInfo  `json:"commands,omitempty"`      // the last MaxAway commands that have ended
	Ended         uint64         `json:"ended,omitempty"`         // number of commands that have ended
}

// MaxAway is the largest number of commands, and of notifications, in an AwayInfo.
const MaxAway = 32

// CommandInfo describes the commands of a session's shell, as the shell reports them by OSC
// 133 (FinalTerm's marks). The shell integration prints these marks.
type CommandInfo struct {
	Prompt     bool      `json:"prompt"`               // the shell waits for a command
	Line       string    `json:"line,omitempty"`       // the running or last command, if the shell has reported it; at most MaxTitle bytes
	StartedAt  time.Time `json:"started_at,omitzero"`  // start of the running or last command
	FinishedAt time.Time `json:"finished_at,omitzero"` // end of the last command; zero while it runs
	ExitCode   *int      `json:"exit_code,omitempty"`  // exit code of the last command that has ended, if the shell has reported it
	Count      uint64    `json:"count"`                // number of commands that have ended

	Cwd    string         `json:"cwd,omitempty"`    // directory in which the running or last command was started, if the shell has reported it
	Output *CommandOutput `json:"output,omitempty"` // place of its output; absent if its start is unknown
}

// MaxCommands is the largest number of ended commands that a session keeps.
const MaxCommands = 256

// CommandOutput is the place of a command's output: in the output of the session, and in its lines.
type CommandOutput struct {
	Start uint64    `json:"start"`         // output offset behind the mark of the command's start
	End   uint64    `json:"end,omitempty"` // output offset of the mark of the command's end; 0 while the command runs
	From  LinePlace `json:"from"`          // place of the first character
	To    LinePlace `json:"to,omitzero"`   // place behind the last character; zero while the command runs
	// Erased tells that a program has erased the screen, and with it a part of the output. From
	// and To then enclose the lines that were not erased.
	Erased bool `json:"erased,omitempty"`
}

// OutputIdleMS is the time without output after which a session is idle, in milliseconds.
const OutputIdleMS = 2000

// MaxMark is the largest size of a mark in bytes.
const MaxMark = 64 << 10

// MarkInfo is the position of a session at one moment. If an await names its Mark, lines that
// were on the screen at that moment do not match.
type MarkInfo struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"` // output offset at that moment
	Mark     []byte   `json:"mark"`   // value for AwaitSpec.Since; opaque to clients; base64, at most MaxMark bytes
	// Inclusive is a mark of the same moment that includes the lines on the screen: they match. An await with it
	// is the same as one that began at that moment without a mark, and can be repeated. Empty if the supervisor
	// does not support it.
	Inclusive []byte `json:"inclusive,omitempty"`
}

// AwaitSpec asks to wait for exactly one of Text, Prompt and IdleMS.
type AwaitSpec struct {
	SessionID SessionID `json:"session_id"`
	// Text is a regular expression (RE2) of at most MaxPattern bytes. It must match a line on
	// the screen, or a line that has left the screen since the await began. A line is matched
	// as a whole, however it was wrapped, and without the blanks at its end.
	Text   string `json:"text,omitempty"`
	Prompt bool   `json:"prompt,omitempty"`  // wait until the shell waits for a command
	IdleMS int64  `json:"idle_ms,omitempty"` // wait until the session has printed nothing for so many milliseconds
	// Since is a mark, or absent. If it is given, only changes after the mark count: a line
	// must have changed, a prompt must have appeared, and the silence must begin after it.
	Since []byte `json:"since,omitempty"`
}

// MaxAwaitIdleMS is the longest silence that can be awaited, in milliseconds.
const MaxAwaitIdleMS = 24 * 60 * 60 * 1000

// Validate returns an error if the request is wrong for every session.
func (a AwaitSpec) Validate() error {
	n := 0
	for _, asked := range []bool{a.Text != "", a.Prompt, a.IdleMS != 0} {
		if asked {
			n++
		}
	}
	if n != 1 {
		return Errorf(CodeInvalidArgument, "exactly one of text, prompt and idle_ms must be given")
	}
	if a.IdleMS < 0 || a.IdleMS > MaxAwaitIdleMS {
		return Errorf(CodeInvalidArgument, "idle_ms must be 1 to %d, but it is %d", MaxAwaitIdleMS, a.IdleMS)
	}
	if len(a.Text) > MaxPattern {
		return TooLarge("the pattern must have at most %d bytes, but it has %d", MaxPattern, len(a.Text))
	}
	if len(a.Since) > MaxMark {
		return Errorf(CodeInvalidArgument, "since is not a mark, because it has more than %d bytes", MaxMark)
	}
	if _, err := regexp.Compile(a.Text); err != nil {
		return Errorf(CodeInvalidArgument, "text: %v", err)
	}
	return a.SessionID.Validate()
}

// AwaitedInfo is the result of an await: the awaited event, or the end of the session.
type AwaitedInfo struct {
	Instance Instance     `json:"instance"`
	Offset   uint64       `json:"offset"`            // output offset at that moment
	Line     string       `json:"line,omitempty"`    // for text: the line that matches
	Groups   []string     `json:"groups,omitempty"`  // for text: the match, and each group of the expression
	Command  *CommandInfo `json:"command,omitempty"` // for prompt: the last command
	Exit     *ExitRecord  `json:"exit,omitempty"`    // set if the session ended first
}

// MaxKeys is the largest number of keys in one input.
const MaxKeys = 256

// MaxHoldMS is the longest time for which a writer holds back the input requests of others, in milliseconds. It leaves time
// to wait for the echo of a text before Enter is sent.
const MaxHoldMS = 2000
