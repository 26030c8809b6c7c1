package vt

// State is all of a terminal that can be seen, or that a later byte may depend on, in a form
// that can be compared and encoded. Tests compare it, and the JSON form of a screen is made
// from it.
type State struct {
	Cols  int    `json:"cols"`
	Rows  int    `json:"rows"`
	Attrs []Attr `json:"attrs"` // the styles of cells and pens; 0 is the default

	Normal    Buffer  `json:"normal"`
	Alternate *Buffer `json:"alternate,omitempty"` // nil unless it is shown

	Pen        int      `json:"pen"` // index into Attrs
	Title      string   `json:"title"`
	IconName   string   `json:"icon_name"`
	TitleStack []string `json:"title_stack"` // oldest first
	IconStack  []string `json:"icon_stack"`
	Modes      Modes    `json:"modes"`
	Charset    string   `json:"charset"`  // designator of the set in use; "" for US ASCII
	Charsets   []string `json:"charsets"` // G0 to G3
	GL         int      `json:"gl"`       // index in Charsets of the set that was shifted in
	Pending    string   `json:"-"`        // bytes of an unfinished sequence or character
	Colors     []Color  `json:"-"`        // colours set by OSC 4, 10, 11, 12
	Keyboard   Keyboard `json:"-"`        // kitty keyboard flags and modifyOtherKeys
	WorkDir    string   `json:"-"`        // OSC 7 or OSC 1337 CurrentDir
}

// Buffer is one of the two screens. Lines has the lines of the history, oldest first, followed
// by the Rows lines of the screen.
type Buffer struct {
	Lines        []Line `json:"lines"`
	History      int    `json:"history"` // number of Lines above the screen
	X            int    `json:"x"`       // 0..cols; cols is a pending wrap
	Y            int    `json:"y"`       // 0..rows-1
	ScrollTop    int    `json:"scroll_top"`
	ScrollBottom int    `json:"scroll_bottom"` // inclusive
	Tabs         []int  `json:"tabs"`          // columns < cols, ascending
	SavedX       int    `json:"saved_x"`
	SavedY       int    `json:"saved_y"`   // row on the screen, at least 0
	SavedPen     int    `json:"saved_pen"` // index into Attrs; it lacks underline style, colour and link
	SavedCharset string `json:"saved_charset"`
}

// Line is one row of cells, without the empty cells of default style at its end.
type Line struct {
	Wrapped bool   `json:"wrapped,omitempty"` // it continues the line above
	Cells   []Cell `json:"cells"`
}

// Cell is one column. Text is "" if the cell was never written, or was erased. Width is 1; it
// is 2 for the first half of a wide character, whose second half is an empty cell of width 0;
// and it is 0 for a combining character that had no character to combine with.
type Cell struct {
	Text  string `json:"t"`
	Width int    `json:"w"`
	Attr  int    `json:"a"` // index into State.Attrs
}

// Attr is the style of a cell. Colours are mode<<24 | value. Mode 0 is the default colour, 1
// one of the 16 colours of SGR 30-37 and 90-97, 2 one of the 256 of the palette, and 3 RGB.
type Attr struct {
	Fg             uint32 `json:"fg"`
	Bg             uint32 `json:"bg"`
	Flags          Flags  `json:"flags"`
	Underline      int    `json:"ul"` // 0 none, 1 single, 2 double, 3 curly, 4 dotted, 5 dashed
	UnderlineColor uint32 `json:"ulc"`
	URI            string `json:"uri"` // OSC 8
	LinkID         string `json:"link_id"`
}

// Flags are the attributes that are on or off.
type Flags uint16

// The bits of Flags.
const (
	Bold Flags = 1 << iota
	Dim
	Italic
	Blink
	Inverse
	Invisible
	Strike
	Overline
	Protected // DECSCA
)

// Modes are the modes that SM, RM, DECSET, DECRST and similar sequences change.
type Modes struct {
	ApplicationCursor bool   `json:"application_cursor"` // 1
	ApplicationKeypad bool   `json:"application_keypad"` // 66
	Origin            bool   `json:"origin"`             // 6
	Wraparound        bool   `json:"wraparound"`         // 7
	ReverseWrap       bool   `json:"reverse_wrap"`       // 45
	Insert            bool   `json:"insert"`             // SM 4
	NewLine           bool   `json:"new_line"`           // SM 20
	BracketedPaste    bool   `json:"bracketed_paste"`    // 2004
	Focus             bool   `json:"focus"`              // 1004
	Synchronized      bool   `json:"synchronized"`       // 2026
	CursorHidden      bool   `json:"cursor_hidden"`      // 25, reset
	CursorBlink       bool   `json:"cursor_blink"`       // 12
	CursorStyle       int    `json:"cursor_style"`       // DECSCUSR, 0 to 6
	Mouse             string `json:"mouse"`              // NONE, X10 (9), VT200 (1000), DRAG (1002), ANY (1003)
	MouseEncoding     string `json:"mouse_encoding"`     // DEFAULT, SGR (1006), SGR_PIXELS (1016)

	// xterm.js does not have these modes.
	Graphemes   bool `json:"-"` // 2027
	ColorScheme bool `json:"-"` // 2031
	SizeReports bool `json:"-"` // 2048
	Win32Input  bool `json:"-"` // 9001

	// The default of 1007 differs between terminals. Its state is therefore unknown until the
	// program sets or resets it.
	AlternateScroll Known `json:"-"` // 1007
}

// Known is the state of a mode that is unknown until the program sets or resets it.
type Known int

// The states of a Known.
const (
	Unknown Known = iota
	KnownSet
	KnownReset
)

func knownMode(on bool) Known {
	if on {
		return KnownSet
	}
	return KnownReset
}

// Color is a colour that a program has set.
type Color struct {
	Index int // 0 to 255 of the palette; 256 foreground, 257 background, 258 cursor
	RGB   uint32
}

// Keyboard is the encoding of keys that a program has requested.
type Keyboard struct {
	Kitty           [2]KittyKeyboard // for the normal and the alternate screen
	ModifyOtherKeys int
}

// KittyKeyboard has the kitty keyboard flags of one screen, and those that were pushed on the
// stack before, oldest first.
type KittyKeyboard struct {
	Flags int
	Stack []int
}
