package protocol

import (
	"strings"
)

// Lines of a session are numbered from 0 in the order of their first characters. A line is the
// output up to a line feed, in however many rows it is displayed. A line that has left the screen
// therefore keeps its number and its text if the width changes. Lines on the screen keep their
// numbers until the program writes there again.

// Limits of history and search. DefaultHistoryLines and DefaultMatches apply if the request
// does not name a number.
const (
	DefaultHistoryLines = 100
	MaxHistoryLines     = 1000     // lines in one reply
	MaxLineBytes        = 64 << 10 // bytes of one line; the line is cut there
	DefaultMatches      = 100
	MaxMatches          = 1000    // matching lines in one reply
	MaxPattern          = 1 << 10 // bytes of a pattern
)

// HistorySpec requests lines of a session, the newest first.
type HistorySpec struct {
	SessionID SessionID `json:"session_id"`
	Before    *uint64   `json:"before,omitempty"` // only lines with smaller numbers; absent: the lines above the screen
	Lines     int       `json:"lines,omitempty"`  // largest number of lines; 0: DefaultHistoryLines
	// Command selects the output of an ended command instead of the lines above the screen: -1 is
	// the last command, -2 the one before it. A positive number is the count of a CommandInfo, which
	// names the same command also after another one has ended.
	Command int `json:"command,omitempty"`
}

// Validate returns an error if the request is wrong for every session.
func (h HistorySpec) Validate() error {
	if h.Lines < 0 {
		return Errorf(CodeInvalidArgument, "lines must not be negative, but it is %d", h.Lines)
	}
	return h.SessionID.Validate()
}

// LinePlace is a place in the text of a line.
type LinePlace struct {
	Line uint64 `json:"line"`
	Byte int    `json:"byte,omitempty"` // number of bytes of the text before the place; the blanks at the end of a text may be missing
}

// LineNumbers tells which lines of a session are kept.
type LineNumbers struct {
	First  uint64 `json:"first"`  // number of the oldest line that is kept
	Screen uint64 `json:"screen"` // number of the first line that begins on the screen
	Next   uint64 `json:"next"`   // number after that of the last line
}

// HistoryContent contains lines of a session, the newest first.
type HistoryContent struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"` // output offset at that moment
	LineNumbers
	Lines []HistoryLine `json:"lines"`
	Looks []Look        `json:"looks"`          // styles of the spans; the first is the default
	More  bool          `json:"more,omitempty"` // there are lines that are older than the last of these
	// Command is the command whose output was requested. The first and the last line of the output
	// have only the parts that the command has printed.
	Command   *CommandInfo `json:"command,omitempty"`
	Truncated bool         `json:"truncated,omitempty"` // a part of the command's output is missing, because it has left the history or was erased
}

// CommandsContent contains the commands of a session that have ended, the oldest first.
type CommandsContent struct {
	Instance Instance      `json:"instance"`
	Offset   uint64        `json:"offset"`   // output offset at that moment
	Count    uint64        `json:"count"`    // number of commands that have ended
	Commands []CommandInfo `json:"commands"` // the last MaxCommands of them, or fewer if their texts are long
}

// HistoryLine is one line without the blanks of default style at its end.
type HistoryLine struct {
	Line  uint64 `json:"line"`
	Spans []Span `json:"spans"`
	Cut   bool   `json:"cut,omitempty"`  // the line is longer than its text here
	Open  bool   `json:"open,omitempty"` // the end of the line is on the screen, so the line may grow
}

// Text returns the line without its styles.
func (l HistoryLine) Text() string {
	var b strings.Builder
	for _, s := range l.Spans {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Span is text of one style.
type Span struct {
	Text string `json:"t"`
	Look int    `json:"l,omitempty"` // index into looks
}

// SearchSpec requests the lines that match a pattern, the newest first.
type SearchSpec struct {
	SessionID  SessionID `json:"session_id"`
	Pattern    string    `json:"pattern"` // a regular expression in the syntax of RE2
	IgnoreCase bool      `json:"ignore_case,omitempty"`
	Before     *uint64   `json:"before,omitempty"` // only lines with smaller numbers; absent: all lines, including those on the screen
	Limit      int       `json:"limit,omitempty"`  // largest number of matching lines; 0: DefaultMatches
}

// Validate returns an error if the request is wrong for every session.
func (s SearchSpec) Validate() error {
	if s.Limit < 0 {
		return Errorf(CodeInvalidArgument, "limit must not be negative, but it is %d", s.Limit)
	}
	if s.Pattern == "" || len(s.Pattern) > MaxPattern {
		return Errorf(CodeInvalidArgument, "pattern must have 1 to %d bytes, but it has %d", MaxPattern, len(s.Pattern))
	}
	return s.SessionID.Validate()
}

// SearchContent contains the lines that match, the newest first.
type SearchContent struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"` // output offset at that moment
	LineNumbers
	Matches []Match `json:"matches"`
	Before  uint64  `json:"before"`         // lines with smaller numbers were not searched
	More    bool    `json:"more,omitempty"` // there are such lines; to search them, send this before in another request
}

// Match is a line that matches.
type Match struct {
	Line   uint64  `json:"line"`
	Text   string  `json:"text"`
	Ranges []Range `json:"ranges"`        // the first matches in the text
	Cut    bool    `json:"cut,omitempty"` // the line is longer than its text here, and the remainder was not searched
}

// Range is a part of a text, in bytes of UTF-8. It begins at Start and ends before End.
type Range struct {
	Start int `json:"start"`
	End   int `json:"end"`
}
