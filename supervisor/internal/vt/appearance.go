package vt

import (
	"cmp"
	"strings"

	"holdfast/shared/palette"
)

// Appearance is what programs are told of the terminal that shows what they
// print. The zero value is that of nobody in particular.
type Appearance struct {
	Foreground, Background, Cursor *uint32 // 0xRRGGBB; nil is xterm.js's
	CellWidth, CellHeight          int     // pixels; 0 is not known, and not told
	Version                        string  // what XTVERSION is answered with; "" is ours
	NoGraphemes                    bool    `json:",omitempty"` // mode 2027 is not known there, and programs are told that
}

// maxVersion bounds the answer to XTVERSION.
const maxVersion = 128

// SetAppearance changes what is answered from now on. It is no part of a
// snapshot: the terminal that gets one looks as it does.
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
	a.Foreground, a.Background, a.Cursor = own(a.Foreground), own(a.Background), own(a.Cursor)
	resized := a.CellWidth != t.look.CellWidth || a.CellHeight != t.look.CellHeight
	t.look = a
	if resized {
		t.TellSize()
	}
}

// own is a colour that nobody else can change.
func own(c *uint32) *uint32 {
	if c == nil {
		return nil
	}
	rgb := *c
	return &rgb
}

// color is one of the colours that are not of the palette.
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

// light reports whether the background is: what is on it will be dark.
func (a *Appearance) light() bool {
	c := a.color(background)
	// Luma of ITU-R BT.601, in thousandths.
	return 299*(c>>16)+587*(c>>8&255)+114*(c&255) >= 128*1000
}

func (t *Term) version() string {
	switch {
	case t.look.Version != "":
		return t.look.Version
	case t.config.Version != "":
		return "holdfast(" + t.config.Version + ")"
	}
	return "holdfast"
}

// tellPixels answers for the size of the screen, or of a cell, in pixels.
func (t *Term) tellPixels(report, cols, rows int) {
	if a := &t.look; a.CellWidth > 0 && a.CellHeight > 0 {
		t.replyf("\x1b[%d;%d;%dt", report, rows*a.CellHeight, cols*a.CellWidth)
	}
}
