package protocol

import (
	"fmt"
	"regexp"
	"time"
)

// ViewerInfo is one who looks at a session.
type ViewerInfo struct {
	Client string    `json:"client,omitempty"` // as it calls itself
	Mode   Mode      `json:"mode"`
	Since  time.Time `json:"since"`
	Window Size      `json:"window,omitzero"` // of its terminal, where it has said so
}

// MaxViewersInfo is how many viewers a SessionInfo names at most.
const MaxViewersInfo = 8

// Left is when a session's last viewer went, and where the session was then. One that
// may not type does not count.
type Left struct {
	At     time.Time `json:"at"`
	Offset uint64    `json:"offset"` // bytes printed by then
	Line   uint64    `json:"line"`   // the first line that was not whole by then, as history counts
}

// AwayInfo is what has happened in a session since its last viewer went, or since its
// start where nobody has looked. While somebody looks it is of the time before that.
type AwayInfo struct {
	Instance      Instance       `json:"instance"`
	Left          *Left          `json:"left,omitempty"`   // absent where nobody has looked
	BackAt        time.Time      `json:"back_at,omitzero"` // while somebody looks: since when
	Printed       uint64         `json:"printed"`          // bytes since then
	Bells         int            `json:"bells,omitempty"`
	Notifications []Notification `json:"notifications,omitempty"` // the last MaxAway
	Commands      []CommandInfo  `json:"commands,omitempty"`      // that have ended, the last MaxAway
	Ended         uint64         `json:"ended,omitempty"`         // how many commands have
}

// MaxAway is how many commands, and notifications, an AwayInfo has at most.
const MaxAway = 32

// CommandInfo is what a session's shell says of the commands it runs, by OSC 133
// (FinalTerm's marks, which the shell integration prints).
type CommandInfo struct {
	Prompt     bool      `json:"prompt"`               // the shell waits for a command
	Line       string    `json:"line,omitempty"`       // the command that runs, or ran last, where that is told; at most MaxTitle bytes
	StartedAt  time.Time `json:"started_at,omitzero"`  // of the command that runs, or ran last
	FinishedAt time.Time `json:"finished_at,omitzero"` // zero while it runs
	ExitCode   *int      `json:"exit_code,omitempty"`  // of the last that has ended, where that was told
	Count      uint64    `json:"count"`                // commands that have ended
}

// OutputIdleMS is how long nothing must be printed before that is an event.
const OutputIdleMS = 2000

// MaxMark bounds a mark, in bytes.
const MaxMark = 64 << 10

// MarkInfo is where a session is at one moment: what is on its screen by then is not
// news to who awaits something with it.
type MarkInfo struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"` // bytes printed by then
	Mark     []byte   `json:"mark"`   // for Await.Since, and nobody else to read; base64, at most MaxMark bytes
}

// AwaitSpec says what is awaited: that one thing.
type AwaitSpec struct {
	SessionID SessionID `json:"session_id"`
	// Text is a regular expression (RE2), at most MaxPattern bytes, that a line on the
	// screen matches, or one that has gone above it meanwhile. A line is whole however
	// it was wrapped, without the blanks at its end.
	Text   string `json:"text,omitempty"`
	Prompt bool   `json:"prompt,omitempty"`  // that its shell waits for a command
	IdleMS int64  `json:"idle_ms,omitempty"` // that nothing is printed for so long
	// Since, where given, is a mark: only what is news since then counts. A line that
	// is as it was is no news, nor is a prompt that had been there, nor the silence before.
	Since []byte `json:"since,omitempty"`
}

// MaxAwaitIdleMS is the longest silence that can be awaited.
const MaxAwaitIdleMS = 24 * 60 * 60 * 1000

// Validate checks what can be checked without the session.
func (a AwaitSpec) Validate() error {
	n := 0
	for _, asked := range []bool{a.Text != "", a.Prompt, a.IdleMS != 0} {
		if asked {
			n++
		}
	}
	if n != 1 {
		return Errorf(CodeInvalidArgument, "one of text, prompt and idle_ms is awaited")
	}
	if a.IdleMS < 0 || a.IdleMS > MaxAwaitIdleMS {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("idle_ms is 1 to %d", MaxAwaitIdleMS))
	}
	if len(a.Text) > MaxPattern {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("a pattern has at most %d bytes", MaxPattern))
	}
	if len(a.Since) > MaxMark {
		return Errorf(CodeInvalidArgument, "since is not a mark")
	}
	if _, err := regexp.Compile(a.Text); err != nil {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("text: %v", err))
	}
	return a.SessionID.Validate()
}

// AwaitedInfo is how an await ended: with what was awaited, or with the session's end.
type AwaitedInfo struct {
	Instance Instance     `json:"instance"`
	Offset   uint64       `json:"offset"`            // bytes printed by then
	Line     string       `json:"line,omitempty"`    // of text: the line that matches
	Groups   []string     `json:"groups,omitempty"`  // of text: what matched, and each group of it
	Command  *CommandInfo `json:"command,omitempty"` // of prompt: what the last command came to
	Exit     *ExitRecord  `json:"exit,omitempty"`    // the session ended first
}

// MaxKeys is how many keys one input has at most.
const MaxKeys = 256
