// Package palette defines the default 256 colours of a terminal.
//
// Invariant: programs that ask for a colour and pages that show it must use the same values, so
// both must use this package.
//
// Not here: colours that a program has changed (the terminal core).
package palette

// Foreground and Background are the default colours as 0xrrggbb. They equal those of xterm.js.
const (
	Foreground = 0xffffff
	Background = 0x000000
)

// basic contains the first 16 colours of xterm.js, which are those of the Tango palette.
var basic = [16]uint32{
	0x2e3436, 0xcc0000, 0x4e9a06, 0xc4a000, 0x3465a4, 0x75507b, 0x06989a, 0xd3d7cf,
	0x555753, 0xef2929, 0x8ae234, 0xfce94f, 0x729fcf, 0xad7fa8, 0x34e2e2, 0xeeeeec,
}

// RGB returns colour n, which must be 0 to 255, as 0xrrggbb. The colours are 16 basic ones, a
// cube of 6x6x6 colours with xterm's levels, and 24 greys.
func RGB(n int) uint32 {
	switch {
	case n < 16:
		return basic[n]
	case n < 232:
		n -= 16
		return level(n/36)<<16 | level(n/6%6)<<8 | level(n%6)
	}
	grey := uint32(8 + 10*(n-232))
	return grey<<16 | grey<<8 | grey
}

// level returns the brightness of step n, 0 to 5, of the cube.
func level(n int) uint32 {
	if n == 0 {
		return 0
	}
	return uint32(55 + 40*n)
}
