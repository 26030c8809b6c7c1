package protocol

// DefaultChangesBytes is the value of ChangesSpec.MaxBytes if the request does not name one.
const DefaultChangesBytes = 16 << 10

// ChangesSpec requests the least text that brings a reader of a session up to date.
type ChangesSpec struct {
	SessionID SessionID `json:"session_id"`
	Since     []byte    `json:"since,omitempty"`     // mark of the reader's last reply; absent: the whole screen
	MaxBytes  int       `json:"max_bytes,omitempty"` // largest size of lines, rows and commands in the reply; 0: DefaultChangesBytes; at most MaxScreenBytes
}

// Validate returns an error if the request is wrong for every session.
func (c ChangesSpec) Validate() error {
	if c.MaxBytes < 0 {
		return Errorf(CodeInvalidArgument, "max_bytes must not be negative, but it is %d", c.MaxBytes)
	}
	if len(c.Since) > MaxMark {
		return Errorf(CodeInvalidArgument, "since is not a mark, because it has more than %d bytes", MaxMark)
	}
	return c.SessionID.Validate()
}

// ChangesContent contains the changes of a session since a mark. A reader keeps the text of the
// lines by number, and that of the rows of the alternate screen, and updates them in this order:
//
//  1. If Whole is set, it drops the lines from From on, and all rows.
//  2. It drops the lines before First and those from Next on. If Alternate is not set, it drops all
//     rows.
//  3. It sets Lines and Rows. A line or row that it does not have is empty.
//
// It then has the lines of the session from the first From on, and the rows of the alternate screen,
// except for those that were left out.
type ChangesContent struct {
	Instance Instance `json:"instance,omitempty"` // for Whole; otherwise it is that of the mark
	Offset   uint64   `json:"offset"`             // output offset at that moment
	Mark     []byte   `json:"mark"`               // value for Since of the next request; opaque to clients; base64, at most MaxMark bytes
	LineNumbers
	Whole     bool             `json:"whole,omitempty"`     // the session does not know what the reader has from From on
	From      uint64           `json:"from,omitempty"`      // for Whole: number of the first line of the reply
	Lines     []ChangedLines   `json:"lines,omitempty"`     // lines that are new or have changed, the oldest first
	Alternate bool             `json:"alternate,omitempty"` // the terminal shows the alternate screen
	Rows      []ChangedRows    `json:"rows,omitempty"`      // rows of the alternate screen that have changed, from the top
	Cursor    Cursor           `json:"cursor"`
	Title     *string          `json:"title,omitempty"`    // set if the title has changed
	Size      *Size            `json:"size,omitempty"`     // set if the size has changed
	Commands  []ChangedCommand `json:"commands,omitempty"` // commands that have ended since the mark, the oldest first
	// LeftOut tells which lines have changed but had no room. A reader can read them by History.
	LeftOut     *LineRange `json:"left_out,omitempty"`
	LeftOutRows int        `json:"left_out_rows,omitempty"` // number of changed rows that had no room
}

// ChangedLines are the texts of consecutive lines, each without the blanks at its end.
type ChangedLines struct {
	Line  uint64   `json:"n"` // number of the first line
	Texts []string `json:"t"`
	Cut   bool     `json:"cut,omitempty"` // there is one text, and the line is longer
}

// ChangedRows are the texts of consecutive rows of the alternate screen, each without the blanks at
// its end.
type ChangedRows struct {
	Row   int      `json:"y"` // the first row, from 0
	Texts []string `json:"t"`
}

// ChangedCommand is a command that has ended.
type ChangedCommand struct {
	Count      uint64 `json:"count"`               // number of the command, for HistorySpec.Command
	Line       string `json:"line,omitempty"`      // at most 256 bytes
	ExitCode   *int   `json:"exit_code,omitempty"` // if the shell has reported it
	DurationMS int64  `json:"duration_ms"`
}

// LineRange is a range of lines. It begins at First and ends before End.
type LineRange struct {
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
}
