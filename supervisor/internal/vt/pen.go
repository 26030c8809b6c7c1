package vt

import "strconv"

// setPen writes the sequences that change the viewer's pen to s: SGR, DECSCA and OSC 8. If a
// link has no room, it is left out and p.unlinked is set.
func (p *painter) setPen(s *style) {
	if *s == p.pen && !p.isPenUnknown {
		return
	}
	if v := s.visible(); v != p.pen.visible() || p.isPenUnknown {
		p.out = append(appendSGR(append(p.out, "\x1b["...), v, ';'), 'm')
		if s.bg&bgProtected != 0 { // SGR 0 has reset it
			p.add("\x1b[1\"q")
		}
	}
	l, left := s.shownLink(), false
	if !sameLink(l, p.pen.shownLink()) {
		if left = l != nil && p.bounded && l.cost() > p.linkRoom; left {
			l, p.unlinked = nil, true
		}
	}
	if !sameLink(l, p.pen.shownLink()) {
		p.add("\x1b]8;")
		if l != nil {
			if l.id != "" {
				p.add("id=" + l.id)
			}
			p.add(";" + l.uri)
			p.linkRoom -= l.cost()
		} else {
			p.add(";")
		}
		p.add("\x1b\\")
	}
	p.pen, p.isPenUnknown = *s, false
	if left {
		p.pen.link = nil
	}
}

// appendSGR appends the parameters of the SGR that gives the pen the style s, whatever its
// style was. s must be a result of visible. sep separates the parts of the colours of text and
// background: all terminals know ';', and ':' leaves each attribute a parameter of its own.
func appendSGR(dst []byte, s style, sep byte) []byte {
	dst = append(dst, '0')
	if s.fg&fgFlags|s.bg&bgFlags != 0 {
		for _, f := range flagBits {
			if f.fg&s.fg|f.bg&s.bg != 0 {
				dst = append(dst, f.code...)
			}
		}
	}
	switch n := s.extended >> underlineShift; n {
	case 0:
	case 1:
		dst = append(dst, ";4"...)
	default:
		dst = append(append(dst, ";4:"...), byte('0'+n))
	}
	dst = appendColor(dst, s.fg&colorMask, 30, sep)
	dst = appendColor(dst, s.bg&colorMask, 40, sep)
	return appendColor(dst, s.extended&colorMask, 50, ':')
}

// appendColor appends the SGR parameters of a colour; base is 30 for the foreground, 40 for
// the background and 50 for the underline. sep separates the parts of the colour.
func appendColor(dst []byte, c uint32, base int64, sep byte) []byte {
	v := int64(c & 0xffffff)
	switch c &^ 0xffffff {
	case colorMode16:
		if v >= 8 {
			v += 60 - 8
		}
		dst = strconv.AppendInt(append(dst, ';'), base+v, 10)
	case colorModeP:
		dst = strconv.AppendInt(append(dst, ';'), base+8, 10)
		dst = strconv.AppendInt(append(dst, sep, '5', sep), v, 10)
	case colorModeRG:
		dst = strconv.AppendInt(append(dst, ';'), base+8, 10)
		if dst = append(dst, sep, '2', sep); sep == ':' {
			dst = append(dst, ':') // the colour space, which is empty
		}
		dst = append(strconv.AppendInt(dst, v>>16, 10), sep)
		dst = append(strconv.AppendInt(dst, v>>8&255, 10), sep)
		dst = strconv.AppendInt(dst, v&255, 10)
	}
	return dst
}

const (
	fgFlags = fgBold | fgBlink | fgInverse | fgInvisible | fgStrike
	bgFlags = bgDim | bgItalic | bgOverline
)

// flagBits lists the attributes that are on or off: their bits in a style, and their SGR
// parameters. SGR does not set DECSCA, so its parameter is empty.
var flagBits = [...]struct {
	fg, bg uint32
	flag   Flags
	code   string
}{
	{fg: fgBold, flag: Bold, code: ";1"}, {bg: bgDim, flag: Dim, code: ";2"}, {bg: bgItalic, flag: Italic, code: ";3"},
	{fg: fgBlink, flag: Blink, code: ";5"}, {fg: fgInverse, flag: Inverse, code: ";7"}, {fg: fgInvisible, flag: Invisible, code: ";8"},
	{fg: fgStrike, flag: Strike, code: ";9"}, {bg: bgOverline, flag: Overline, code: ";53"}, {bg: bgProtected, flag: Protected},
}

// AppendSGR appends the parameters of the SGR that gives the pen the style a, whatever its
// style was. They contain neither the link nor DECSCA, because other sequences set these.
func (a Attr) AppendSGR(dst []byte) []byte {
	s := style{fg: a.Fg, bg: a.Bg, extended: a.UnderlineColor | uint32(a.Underline)<<underlineShift}
	for _, f := range flagBits {
		if a.Flags&f.flag != 0 {
			s.fg |= f.fg
			s.bg |= f.bg
		}
	}
	return appendSGR(dst, s, ';')
}
