package vt

import (
	"cmp"
	"strings"

	"holdfast/shared/palette"
	"holdfast/supervisor/internal/picture"
)

// Appearance describes the terminal that displays the output, as far as programs may ask for
// it. The zero value describes an unknown terminal.
type Appearance struct {
	Foreground, Background, Cursor *uint32 // 0xRRGGBB; nil is the default of xterm.js
	CellWidth, CellHeight          int     // pixels; if 0, the size is unknown and is not reported
	Version                        string  // name and version of the terminal; XTVERSION reports them behind this core's own
	NoGraphemes                    bool    `json:",omitempty"` // the terminal lacks mode 2027, so DECRQM must report it as unknown

	Pictures    picture.Formats `json:",omitempty"` // the forms of pictures that the terminal shows
	PictureCell picture.Cell    `json:",omitzero"`  // the exact size of a cell, which may have fractions of a pixel
}

// maxVersion is the largest length of Appearance.Version, in bytes.
const maxVersion = 128

// SetAppearance changes the values that later answers report. Control characters are removed
// from the version, and it is cut to maxVersion bytes. If mode 2048 is set and the size of a
// cell changes, the new size is reported. Snapshots do not contain the appearance, because a
// viewer's terminal has its own.
func (t *Term) SetAppearance(a Appearance) {
	version := strings.ToValidUTF8(a.Version, "")
	version = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, version)
	if len(version) > maxVersion {
		version = strings.ToValidUTF8(version[:maxVersion], "")
	}
	a.Version = version
	a.Foreground, a.Background, a.Cursor = cloneColor(a.Foreground), cloneColor(a.Background), cloneColor(a.Cursor)
	resized := a.CellWidth != t.appearance.CellWidth || a.CellHeight != t.appearance.CellHeight
	t.appearance = a
	if resized {
		t.ReportSize()
	}
}

// cloneColor returns a copy of a colour, so that the caller of SetAppearance cannot change it
// afterwards.
func cloneColor(c *uint32) *uint32 {
	if c == nil {
		return nil
	}
	rgb := *c
	return &rgb
}

// color returns the colour with the number n: foreground, background or cursorColor. If the
// appearance lacks it, color returns the default of xterm.js. The cursor has the colour of the
// text if only the latter is known.
func (a *Appearance) color(n int) uint32 {
	c, other := a.Foreground, uint32(palette.Foreground)
	switch n {
	case background:
		c, other = a.Background, palette.Background
	case cursorColor:
		c = cmp.Or(a.Cursor, a.Foreground)
	}
	if c == nil {
		return other
	}
	return *c
}

// light reports whether the background is light, so that a program should print dark text.
func (a *Appearance) light() bool {
	c := a.color(background)
	// Luma as in ITU-R BT.601, in thousandths.
	return 299*(c>>16)+587*(c>>8&255)+114*(c&255) >= 128*1000
}

// version returns the name in the answer to XTVERSION: that of this core, followed by that of
// the viewer's terminal. Programs judge the terminal's features by the beginning of the
// answer, so this core must come first: tmux, for example, uses left and right margins in
// iTerm2 and mintty, and this core does not implement them. Programs that choose a format for
// images search the whole answer for a name.
func (t *Term) version() string {
	name := "holdfast"
	if t.config.Version != "" {
		name += "(" + t.config.Version + ")"
	}
	if t.appearance.Version != "" {
		name += " " + t.appearance.Version
	}
	return name
}

// reportPixels answers with the size in pixels of an area of cols and rows, as the report with
// the given number. If the size of a cell is unknown, there is no answer.
func (t *Term) reportPixels(report, cols, rows int) {
	if a := &t.appearance; a.CellWidth > 0 && a.CellHeight > 0 {
		t.replyf("\x1b[%d;%d;%dt", report, rows*a.CellHeight, cols*a.CellWidth)
	}
}
