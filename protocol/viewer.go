package protocol

// View selects the output for a viewer if its terminal has another size than the session.
type View string

// The views.
const (
	ViewRaw View = "raw" // the session's output, unchanged; the default
	ViewOwn View = "own" // the screen, laid out for the viewer's size
)

// SizePolicy determines the size of a session.
type SizePolicy string

// The policies. Viewers that are read-only or that sent no size never count.
const (
	SizeLatest   SizePolicy = "latest"   // the size of the viewer that sent input last; the default
	SizeOwner    SizePolicy = "owner"    // the size of the viewer that attached first
	SizeSmallest SizePolicy = "smallest" // the smallest number of columns and the smallest number of rows
	SizeLargest  SizePolicy = "largest"  // the largest number of columns and the largest number of rows
	SizeFixed    SizePolicy = "fixed"    // a size that viewers do not change; only a request does
)

// SmallestCols and SmallestRows are the smallest size that a viewer's window can give a session.
// Otherwise one tiny window could make the session useless for all viewers.
const (
	SmallestCols = 20
	SmallestRows = 5
)

// Validate returns invalid_argument if the policy is unknown. "" is valid.
func (p SizePolicy) Validate() error {
	switch p {
	case "", SizeLatest, SizeOwner, SizeSmallest, SizeLargest, SizeFixed:
		return nil
	}
	return Errorf(CodeInvalidArgument, "a size policy must be latest, owner, smallest, largest or fixed, but it is %.40q", string(p))
}

// MaxTerminalVersion is the largest length of Appearance.Version in bytes.
const MaxTerminalVersion = 128

// maxCell is the largest side of a cell in pixels.
const maxCell = 1024

// Appearance contains properties of a terminal that programs may query. An empty field means that
// the value is unknown.
type Appearance struct {
	Foreground string `json:"foreground,omitempty"` // #rrggbb
	Background string `json:"background,omitempty"`
	Cursor     string `json:"cursor,omitempty"`
	CellWidth  int    `json:"cell_width,omitempty"` // width of a character cell in pixels
	CellHeight int    `json:"cell_height,omitempty"`
	Version    string `json:"version,omitempty"` // name and version of the terminal, as XTVERSION reports them

	// NoGraphemes tells that the terminal does not support mode 2027, grapheme clusters.
	NoGraphemes bool `json:"no_graphemes,omitempty"`

	Pictures Pictures `json:"pictures,omitzero"`
}

// Pictures tells in which forms a viewer's terminal shows pictures. A viewer that has sent an appearance
// receives the bytes of no other pictures. The size of a cell is the exact one, in which a browser has
// fractions of a pixel. If it is missing, it is that of the appearance.
type Pictures struct {
	Sixel      bool    `json:"sixel,omitempty"`  // DCS q
	ITerm2     bool    `json:"iterm2,omitempty"` // OSC 1337 File=
	Kitty      bool    `json:"kitty,omitempty"`  // APC G, kitty's graphics
	CellWidth  float64 `json:"cell_width,omitempty"`
	CellHeight float64 `json:"cell_height,omitempty"`
}

// Validate returns an error if the form of a field is wrong.
func (a Appearance) Validate() error {
	for _, c := range [...]string{a.Foreground, a.Background, a.Cursor} {
		if c != "" && !isHexColor(c) {
			return Errorf(CodeInvalidArgument, "a colour must be #rrggbb, but it is %.40q", c)
		}
	}
	if a.CellWidth < 0 || a.CellHeight < 0 || a.CellWidth > maxCell || a.CellHeight > maxCell {
		return Errorf(CodeInvalidArgument, "cell_width and cell_height must be 0 to %d pixels", maxCell)
	}
	if p := a.Pictures; !(p.CellWidth >= 0 && p.CellHeight >= 0 && p.CellWidth <= maxCell && p.CellHeight <= maxCell) {
		return Errorf(CodeInvalidArgument, "cell_width and cell_height of pictures must be 0 to %d pixels", maxCell)
	}
	if len(a.Version) > MaxTerminalVersion {
		return TooLarge("version must have at most %d bytes, but it has %d", MaxTerminalVersion, len(a.Version))
	}
	return nil
}

func isHexColor(s string) bool {
	if len(s) != 7 || s[0] != '#' {
		return false
	}
	for i := 1; i < len(s); i++ {
		c := s[i] | 0x20
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// Pixels returns the size in pixels of a terminal with s cells, or 0 and 0 if the size of a cell is
// unknown.
func (a Appearance) Pixels(s Size) (width, height int) {
	return min(a.CellWidth*s.Cols, maxPixels), min(a.CellHeight*s.Rows, maxPixels)
}

// maxPixels is the largest value in the kernel's struct winsize.
const maxPixels = 1<<16 - 1
