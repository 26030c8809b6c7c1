package protocol

import (
	"time"
)

// DefaultHistory is the number of lines above the screen in a snapshot if the attach does not name
// one. People rarely scroll back further, and so many lines take only some milliseconds.
const DefaultHistory = 1000

// ScreenFormat is the form of a screen in a reply.
type ScreenFormat string

// The formats.
const (
	ScreenText  ScreenFormat = "text"  // lines of text; the default
	ScreenCells ScreenFormat = "cells" // rows of cells with their styles
	ScreenANSI  ScreenFormat = "ansi"  // bytes that print the lines in colour on a terminal
	ScreenState ScreenFormat = "state" // bytes that bring a new terminal into the state of this one, as a snapshot does
)

// AllScrollback requests all lines above the screen.
const AllScrollback = -1

// ScreenSpec requests a session's screen, or parts of it.
type ScreenSpec struct {
	SessionID  SessionID    `json:"session_id"`
	Format     ScreenFormat `json:"format,omitempty"`     // "" is text
	Lines      int          `json:"lines,omitempty"`      // only the last so many lines; without Scrollback they may begin above the screen
	Scrollback int          `json:"scrollback,omitempty"` // so many lines above the screen in addition; -1: all
	Skip       int          `json:"skip,omitempty"`       // leave out the last so many of these lines
	NonEmpty   bool         `json:"non_empty,omitempty"`  // leave out blank lines
	Cols       int          `json:"cols,omitempty"`       // lay the lines out for a terminal of this width; 0: the session's width
	Rows       int          `json:"rows,omitempty"`       // and of this height; 0: the session's height
	At         *Moment      `json:"at,omitempty"`         // the screen at an earlier moment; absent: the present one
	Pictures   bool         `json:"pictures,omitempty"`   // with format cells: send the pictures, too
}

// Validate returns an error if the request is wrong for every session.
func (s ScreenSpec) Validate() error {
	switch s.Format {
	case "", ScreenText, ScreenCells, ScreenANSI:
	case ScreenState:
		if s.Lines != 0 || s.Skip != 0 || s.NonEmpty {
			return Errorf(CodeInvalidArgument, "lines, skip and non_empty exclude the format state")
		}
	default:
		return Errorf(CodeInvalidArgument, "format must be text, cells, ansi or state, but it is %.40q", string(s.Format))
	}
	if s.At != nil {
		if err := s.At.Validate(); err != nil {
			return err
		}
	}
	if err := (Size{s.Cols, s.Rows}).Validate(); err != nil {
		return err
	}
	if s.Lines < 0 || s.Skip < 0 || s.Scrollback < AllScrollback {
		return Errorf(CodeInvalidArgument, "lines, skip and scrollback must not be negative, except a scrollback of -1")
	}
	return s.SessionID.Validate()
}

// ScreenContent is a session's screen at one moment.
type ScreenContent struct {
	Instance  Instance     `json:"instance"`
	Offset    uint64       `json:"offset"` // output offset at that moment
	Cols      int          `json:"cols"`
	Rows      int          `json:"rows"`
	Cursor    Cursor       `json:"cursor"`
	Title     string       `json:"title"`
	Alternate bool         `json:"alternate,omitempty"` // the terminal shows the alternate screen
	Input     InputMode    `json:"input,omitempty"`     // what the terminal does with input; absent for an earlier moment, after the end, and if it is not known
	Above     int          `json:"above,omitempty"`     // for format cells: number of rows that are above the screen
	Lines     []string     `json:"lines,omitempty"`     // for format text
	Cells     []ScreenLine `json:"cells,omitempty"`     // for format cells
	Looks     []Look       `json:"looks,omitempty"`     // for format cells: styles of the cells; the first is the default
	ANSI      string       `json:"ansi,omitempty"`      // for format ansi: lines that end with SGR 0 and a newline
	State     []byte       `json:"state,omitempty"`     // for format state: base64
	// Pictures has the pictures that the cells show, if the request asks for them. Text may lie over them.
	Pictures  []ScreenPicture `json:"pictures,omitempty"`
	Truncated bool            `json:"truncated,omitempty"` // the oldest lines are missing, because one message cannot contain all
	PrintedAt time.Time       `json:"printed_at,omitzero"` // if the request has at: when the last output before Offset was printed, if that is known
	Inexact   bool            `json:"inexact,omitempty"`   // if the request has at: output before Offset is not kept, so the screen may have been another one
}

// ScreenPicture is a picture, or a part of one, that covers a rectangle of cells.
type ScreenPicture struct {
	Row  int    `json:"row"` // index in cells of the first row
	Col  int    `json:"col"` // first column
	Rows int    `json:"rows"`
	Cols int    `json:"cols"`
	PNG  []byte `json:"png"` // base64; the last row and column may be incomplete
}

// InputMode is what a terminal does with input before the program gets it, as the program has set it.
type InputMode string

// The modes of input.
const (
	InputLine   InputMode = "line"   // collects lines and shows them, as for a program that reads an answer
	InputHidden InputMode = "hidden" // collects lines and does not show them, as for a password
	InputKeys   InputMode = "keys"   // passes each key on, as to an editor, or to a shell at its prompt
)

// Cursor is the position of the next character, counted from 0.
type Cursor struct {
	X      int  `json:"x"`
	Y      int  `json:"y"`
	Hidden bool `json:"hidden,omitempty"`
}

// ScreenLine is one row without the empty cells of default style at its end.
type ScreenLine struct {
	Wrapped bool         `json:"wrapped,omitempty"` // the row continues the row above
	Cells   []ScreenCell `json:"cells"`
}

// ScreenCell is one character with its combining characters, or an empty cell.
type ScreenCell struct {
	Text  string `json:"t"`
	Width int    `json:"w,omitempty"` // columns; absent: 1
	Look  int    `json:"l,omitempty"` // index into looks
}

// Columns returns the number of columns of the cell.
func (c ScreenCell) Columns() int { return max(c.Width, 1) }

// Look is the style of a cell. A colour is "" for the default, a number from 0 to 255 of the
// palette, or #rrggbb.
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
	Link           string    `json:"link,omitempty"` // the URI of OSC 8, unchanged
}

// Underline is the style of an underline; "" means none.
type Underline string

// The underlines.
const (
	UnderlineSingle Underline = "single"
	UnderlineDouble Underline = "double"
	UnderlineCurly  Underline = "curly"
	UnderlineDotted Underline = "dotted"
	UnderlineDashed Underline = "dashed"
)

// Notification is a message of a program to its user.
type Notification struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body"`
}
