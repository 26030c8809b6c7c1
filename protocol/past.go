package protocol

import (
	"time"
)

// The past of a session is its output so far, with the times at which it was printed, as far as
// the store on disk and the supervisor's memory have it. A session that is not stored has a past
// as well: the output that the ring holds.

// Limits of the replies about the past of a session.
const (
	MaxPastTimes    = 500 // pairs of an offset and a time
	MaxPastGaps     = 100 // gaps; the largest are returned
	MaxPastCommands = 500 // commands; the last are returned
)

// A Moment names a place in the output of a session. Exactly one field must be set.
type Moment struct {
	Offset *uint64   `json:"offset,omitempty"` // after so many bytes of output
	Time   time.Time `json:"time,omitzero"`    // after the output that was printed up to this time
	AgoMS  *int64    `json:"ago_ms,omitempty"` // so many milliseconds before the request; 0: the end of the output
	// Command is negative and counts the commands of the shell that have ended: -1 is the end of
	// the last one, -2 that of the one before.
	Command int `json:"command,omitempty"`
}

// Validate returns an error if the moment is wrong for every session.
func (m Moment) Validate() error {
	n := 0
	for _, isSet := range []bool{m.Offset != nil, !m.Time.IsZero(), m.AgoMS != nil, m.Command != 0} {
		if isSet {
			n++
		}
	}
	if n != 1 {
		return Errorf(CodeInvalidArgument, "a moment must have exactly one of offset, time, ago_ms and command")
	}
	if m.AgoMS != nil && *m.AgoMS < 0 {
		return Errorf(CodeInvalidArgument, "ago_ms must not be negative, but it is %d", *m.AgoMS)
	}
	if m.Command > 0 {
		return Errorf(CodeInvalidArgument, "command must be negative (-1 is the last command), but it is %d", m.Command)
	}
	return nil
}

// PastSpec asks for a description of a session's past.
type PastSpec struct {
	SessionID SessionID `json:"session_id"`
	From      uint64    `json:"from,omitempty"` // only times, gaps and commands from this offset on
	To        uint64    `json:"to,omitempty"`   // and up to this one; 0: up to the end
}

// Validate returns an error if the request is wrong for every session.
func (p PastSpec) Validate() error {
	if p.To != 0 && p.To < p.From {
		return Errorf(CodeInvalidArgument, "to must not be smaller than from, but they are %d and %d", p.To, p.From)
	}
	return p.SessionID.Validate()
}

// PastContent describes the past of a session. Start and End are the first and the last offset
// whose screen can be shown.
type PastContent struct {
	Instance     Instance      `json:"instance"`
	Mode         Durable       `json:"mode"` // how much of the session is stored on disk
	Start        uint64        `json:"start"`
	End          uint64        `json:"end"`
	StartAt      time.Time     `json:"start_at,omitzero"` // when the output at Start was printed; absent if that is not known
	EndAt        time.Time     `json:"end_at,omitzero"`   // when the last output before End was printed
	Times        []PastTime    `json:"times"`             // samples, in ascending order; at most MaxPastTimes
	Gaps         []PastGap     `json:"gaps,omitempty"`    // the largest ones, in ascending order; at most MaxPastGaps
	MoreGaps     bool          `json:"more_gaps,omitempty"`
	Commands     []PastCommand `json:"commands,omitempty"` // the last ones, in ascending order; at most MaxPastCommands
	MoreCommands bool          `json:"more_commands,omitempty"`
}

// PastTime tells when output was printed.
type PastTime struct {
	Offset uint64    `json:"offset"`
	At     time.Time `json:"at"` // the output from Offset on was printed at this time, or later
}

// PastGap is a range of output that is not kept.
type PastGap struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// PastCommand is a command of the session's shell that has ended.
type PastCommand struct {
	Line       string    `json:"line,omitempty"` // if the shell has reported it; at most MaxTitle bytes
	Cwd        string    `json:"cwd,omitempty"`  // the directory that the shell has reported last
	Start      uint64    `json:"start"`          // offset at which the command began
	End        uint64    `json:"end"`            // offset at which it ended
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	ExitCode   *int      `json:"exit_code,omitempty"` // if the shell has reported it
}

// PastSize is the size that the terminal had from an offset on.
type PastSize struct {
	Offset uint64 `json:"offset"`
	Size
}

// PastSearchSpec requests the lines of a session's past that match a pattern, the newest first. They
// are lines of the output, without escape sequences. The history has lines as well, but only the
// last ones.
type PastSearchSpec struct {
	SessionID  SessionID `json:"session_id"`
	Pattern    string    `json:"pattern"` // a regular expression in the syntax of RE2
	IgnoreCase bool      `json:"ignore_case,omitempty"`
	Before     *uint64   `json:"before,omitempty"` // only lines that begin before this offset; absent: all lines
	Limit      int       `json:"limit,omitempty"`  // largest number of matching lines; 0: DefaultMatches
}

// Validate returns an error if the request is wrong for every session.
func (s PastSearchSpec) Validate() error {
	return SearchSpec{SessionID: s.SessionID, Pattern: s.Pattern, Limit: s.Limit}.Validate()
}

// PastSearchContent contains the lines that match, the newest first.
type PastSearchContent struct {
	Instance Instance    `json:"instance"`
	Start    uint64      `json:"start"` // offset of the oldest output that is kept
	End      uint64      `json:"end"`   // number of bytes of output so far
	Matches  []PastMatch `json:"matches"`
	Before   uint64      `json:"before"`         // lines that begin before this offset were not searched
	More     bool        `json:"more,omitempty"` // there may be such lines; to search them, send this before in another request
}

// PastMatch is a line of output that matches.
type PastMatch struct {
	Offset uint64    `json:"offset"`      // output offset of the line's first character
	At     time.Time `json:"at,omitzero"` // when that was printed, to a tenth of a second; absent if that is not known
	Text   string    `json:"text"`        // the line without escape sequences, at most MaxLineBytes
	Ranges []Range   `json:"ranges"`      // the first matches in the text
}
