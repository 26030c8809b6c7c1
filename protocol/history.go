package protocol

import "fmt"

// A session's lines are numbered from 0 on, in the order in which they were
// begun. A line is what was printed up to a line feed, in however many rows it
// lies: so a line that has left the screen keeps its number and its text when
// the width changes. The numbers of those on the screen hold until the program
// writes there again.

// Limits on what is told of a history at a time.
const (
	DefaultHistoryLines = 100
	MaxHistoryLines     = 1000 // of one answer
	MaxLineBytes        = 64 << 10
	DefaultMatches      = 100
	MaxMatches          = 1000
	MaxPattern          = 1 << 10
)

// HistorySpec asks for lines, the newest first.
type HistorySpec struct {
	SessionID SessionID `json:"session_id"`
	Before    *uint64   `json:"before,omitempty"` // only lines with smaller numbers; absent: those above the screen
	Lines     int       `json:"lines,omitempty"`  // at most; 0 is 100
}

// Validate checks what can be checked without the session.
func (h HistorySpec) Validate() error {
	if h.Lines < 0 {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("lines is not negative, it is %d", h.Lines))
	}
	return h.SessionID.Validate()
}

// LineNumbers says which lines there are.
type LineNumbers struct {
	First  uint64 `json:"first"`  // the oldest line kept
	Screen uint64 `json:"screen"` // the first one that begins on the screen
	Next   uint64 `json:"next"`   // the number after the last one's
}

// HistoryContent is lines of a session, the newest first.
type HistoryContent struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"` // of the next byte printed
	LineNumbers
	Lines []HistoryLine `json:"lines"`
	Looks []Look        `json:"looks"`          // what the spans refer to; the first is the default
	More  bool          `json:"more,omitempty"` // older lines than the last of these are kept
}

// HistoryLine is one line without blanks of default look at its end.
type HistoryLine struct {
	Line  uint64 `json:"line"`
	Spans []Span `json:"spans"`
	Cut   bool   `json:"cut,omitempty"`  // there is more of it than is told, or was
	Open  bool   `json:"open,omitempty"` // its end is on the screen, where more may come
}

// Span is text of one look.
type Span struct {
	Text string `json:"t"`
	Look int    `json:"l,omitempty"` // index into looks
}

// SearchSpec asks for lines that match, the newest first.
type SearchSpec struct {
	SessionID  SessionID `json:"session_id"`
	Pattern    string    `json:"pattern"` // a regular expression of RE2's syntax
	IgnoreCase bool      `json:"ignore_case,omitempty"`
	Before     *uint64   `json:"before,omitempty"` // only lines with smaller numbers; absent: all, with those of the screen
	Limit      int       `json:"limit,omitempty"`  // matching lines at most; 0 is 100
}

// Validate checks what can be checked without the session.
func (s SearchSpec) Validate() error {
	if s.Limit < 0 {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("limit is not negative, it is %d", s.Limit))
	}
	if s.Pattern == "" || len(s.Pattern) > MaxPattern {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("pattern must have 1 to %d bytes, it has %d", MaxPattern, len(s.Pattern)))
	}
	return s.SessionID.Validate()
}

// SearchContent is lines that match, the newest first.
type SearchContent struct {
	Instance Instance `json:"instance"`
	Offset   uint64   `json:"offset"` // of the next byte printed
	LineNumbers
	Matches []Match `json:"matches"`
	Before  uint64  `json:"before"`         // lines with smaller numbers were not looked at
	More    bool    `json:"more,omitempty"` // there are such: ask again with this as before
}

// Match is a line that matches.
type Match struct {
	Line   uint64  `json:"line"`
	Text   string  `json:"text"`
	Ranges []Range `json:"ranges"`        // where, the first few
	Cut    bool    `json:"cut,omitempty"` // there is more of the line than is told and was looked at
}

// Range is a part of a text, in bytes of UTF-8: from Start up to End, which is
// not in it.
type Range struct {
	Start int `json:"start"`
	End   int `json:"end"`
}
