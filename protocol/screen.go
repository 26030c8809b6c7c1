package protocol

import "fmt"

// DefaultHistory is how many lines above the screen an attach brings that does
// not say how many: what a person scrolls back to, in a few milliseconds.
const DefaultHistory = 1000

// ScreenFormat is the form in which a screen is told.
type ScreenFormat string

// The formats.
const (
	ScreenText  ScreenFormat = "text"  // lines of text; the default
	ScreenCells ScreenFormat = "cells" // rows of cells, with their looks
	ScreenANSI  ScreenFormat = "ansi"  // bytes that print the lines in colour
)

// AllScrollback asks for all lines above the screen.
const AllScrollback = -1

// ScreenSpec says what of a session's screen to tell, and how.
type ScreenSpec struct {
	SessionID  SessionID    `json:"session_id"`
	Format     ScreenFormat `json:"format,omitempty"`     // "" is text
	Lines      int          `json:"lines,omitempty"`      // only the last so many; without Scrollback also from above the screen
	Scrollback int          `json:"scrollback,omitempty"` // so many lines above the screen, too; -1 is all
	Skip       int          `json:"skip,omitempty"`       // of these, without the last so many
	NonEmpty   bool         `json:"non_empty,omitempty"`  // only lines that are not blank
	Cols       int          `json:"cols,omitempty"`       // as on a terminal so wide; 0 is the session's width
	Rows       int          `json:"rows,omitempty"`       // and so high
}

// Validate checks what can be checked without the session.
func (s ScreenSpec) Validate() error {
	switch s.Format {
	case "", ScreenText, ScreenCells, ScreenANSI:
	default:
		return Errorf(CodeInvalidArgument, fmt.Sprintf("format must be text, cells or ansi, it is %.40q", string(s.Format)))
	}
	if s.Cols < 0 || s.Rows < 0 {
		return Errorf(CodeInvalidArgument, "cols and rows are not negative")
	}
	if s.Lines < 0 || s.Skip < 0 || s.Scrollback < AllScrollback {
		return Errorf(CodeInvalidArgument, "lines, skip and scrollback are not negative, but for a scrollback of -1")
	}
	return s.SessionID.Validate()
}

// ScreenContent is a session's screen at one moment.
type ScreenContent struct {
	Instance  Instance     `json:"instance"`
	Offset    uint64       `json:"offset"` // of the next byte printed
	Cols      int          `json:"cols"`
	Rows      int          `json:"rows"`
	Cursor    Cursor       `json:"cursor"`
	Title     string       `json:"title"`
	Alternate bool         `json:"alternate,omitempty"` // the alternate screen is shown
	Above     int          `json:"above,omitempty"`     // of cells: how many of the rows lie above the screen
	Lines     []string     `json:"lines,omitempty"`     // of format text
	Cells     []ScreenLine `json:"cells,omitempty"`     // of format cells
	Looks     []Look       `json:"looks,omitempty"`     // of format cells: what the cells refer to; the first is the default
	ANSI      string       `json:"ansi,omitempty"`      // of format ansi: lines that end with SGR 0 and a newline
	Truncated bool         `json:"truncated,omitempty"` // there was more than one message holds: the oldest are missing
}

// Cursor is where the next character goes, counted from 0.
type Cursor struct {
	X      int  `json:"x"`
	Y      int  `json:"y"`
	Hidden bool `json:"hidden,omitempty"`
}

// ScreenLine is one row. Empty cells of default look at its end are left out.
type ScreenLine struct {
	Wrapped bool         `json:"wrapped,omitempty"` // it continues the row above
	Cells   []ScreenCell `json:"cells"`
}

// ScreenCell is one character with all that combines with it, or nothing.
type ScreenCell struct {
	Text  string `json:"t"`
	Width int    `json:"w,omitempty"` // columns; absent is 1
	Look  int    `json:"l,omitempty"` // index into looks
}

// Columns is how many columns the cell takes.
func (c ScreenCell) Columns() int { return max(c.Width, 1) }

// Look is what a cell looks like. A colour is "" for the default, a number
// from 0 to 255 of the palette, or #rrggbb.
type Look struct {
	Fg             string    `json:"fg,omitempty"`
	Bg             string    `json:"bg,omitempty"`
	Bold           bool      `json:"bold,omitempty"`
	Dim            bool      `json:"dim,omitempty"`
	Italic         bool      `json:"italic,omitempty"`
	Blink          bool      `json:"blink,omitempty"`
	Inverse        bool      `json:"inverse,omitempty"`
	Invisible      bool      `json:"invisible,omitempty"`
	Strike         bool      `json:"strike,omitempty"`
	Overline       bool      `json:"overline,omitempty"`
	Underline      Underline `json:"underline,omitempty"`
	UnderlineColor string    `json:"underline_color,omitempty"`
	Link           string    `json:"link,omitempty"` // what OSC 8 gave, as it came
}

// Underline is how a cell is underlined; "" is not at all.
type Underline string

// The underlines.
const (
	UnderlineSingle Underline = "single"
	UnderlineDouble Underline = "double"
	UnderlineCurly  Underline = "curly"
	UnderlineDotted Underline = "dotted"
	UnderlineDashed Underline = "dashed"
)

// Notification is what a program wants its user to know.
type Notification struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body"`
}
