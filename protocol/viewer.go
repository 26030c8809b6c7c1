package protocol

import "fmt"

// View is what a viewer is shown whose terminal has another size than the
// session's.
type View string

// The views.
const (
	ViewRaw View = "raw" // what is printed, as it is; the default
	ViewOwn View = "own" // the screen, reflowed to the viewer's size
)

// SizePolicy says whose size a session has.
type SizePolicy string

// The policies. Viewers that only look, or that gave no size, never count.
const (
	SizeLatest   SizePolicy = "latest"   // of who typed last; the default
	SizeOwner    SizePolicy = "owner"    // of who came first
	SizeSmallest SizePolicy = "smallest" // the smallest columns and the smallest rows
	SizeLargest  SizePolicy = "largest"  // the largest of both
	SizeFixed    SizePolicy = "fixed"    // of nobody: it changes on request alone
)

// SmallestCols and SmallestRows are the least that a viewer's window can make of a
// session's size: a window that was made tiny must not make everybody's useless.
const (
	SmallestCols = 20
	SmallestRows = 5
)

// Validate returns invalid_argument for an unknown policy; "" is fine.
func (p SizePolicy) Validate() error {
	switch p {
	case "", SizeLatest, SizeOwner, SizeSmallest, SizeLargest, SizeFixed:
		return nil
	}
	return Errorf(CodeInvalidArgument, fmt.Sprintf("size_policy must be latest, owner, smallest, largest or fixed, it is %.40q", string(p)))
}

// MaxTerminalVersion bounds what a viewer says of its terminal, in bytes.
const MaxTerminalVersion = 128

// maxCell bounds a cell's sides in pixels, so that a screen's can be counted.
const maxCell = 1024

// Appearance is what programs may ask a terminal about itself. An empty field
// is not known.
type Appearance struct {
	Foreground string `json:"foreground,omitempty"` // #rrggbb
	Background string `json:"background,omitempty"`
	Cursor     string `json:"cursor,omitempty"`
	CellWidth  int    `json:"cell_width,omitempty"` // of a character cell, in pixels
	CellHeight int    `json:"cell_height,omitempty"`
	Version    string `json:"version,omitempty"` // the terminal's name and version, as XTVERSION tells it

	// NoGraphemes says that the terminal does not know mode 2027, grapheme clusters.
	NoGraphemes bool `json:"no_graphemes,omitempty"`
}

// Validate checks the form of each field.
func (a Appearance) Validate() error {
	for _, c := range [...]string{a.Foreground, a.Background, a.Cursor} {
		if c != "" && !isHexColor(c) {
			return Errorf(CodeInvalidArgument, fmt.Sprintf("a colour is #rrggbb, it is %.40q", c))
		}
	}
	if a.CellWidth < 0 || a.CellHeight < 0 || a.CellWidth > maxCell || a.CellHeight > maxCell {
		return Errorf(CodeInvalidArgument, fmt.Sprintf("a cell's sides are 0 to %d pixels", maxCell))
	}
	if len(a.Version) > MaxTerminalVersion {
		return Errorf(CodeLimitExceeded, fmt.Sprintf("version is over %d bytes", MaxTerminalVersion))
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

// Pixels is the size in pixels of a terminal of so many cells, 0 and 0 where
// that is not known.
func (a Appearance) Pixels(s Size) (width, height int) {
	return min(a.CellWidth*s.Cols, maxPixels), min(a.CellHeight*s.Rows, maxPixels)
}

// maxPixels is what the kernel's struct winsize holds.
const maxPixels = 1<<16 - 1
