package vt

// sgr executes SGR. If a colour is unfinished, the result is that of xterm.js. A new colour
// replaces all bits of the old one. In xterm.js, parts of an RGB value may remain under a
// colour of the palette.
func (t *Term) sgr() {
	p, s := &t.par, &t.pen
	if p.n == 1 && p.v[0] == 0 {
		s.reset()
		t.penChanged()
		return
	}
	for i := 0; i < p.n; i++ {
		v := p.v[i]
		if uint32(v) < uint32(len(sgrBits)) {
			c := &sgrBits[v]
			s.fg, s.bg = s.fg&^c.fgMask|c.fg, s.bg&^c.bgMask|c.bg
		}
		switch v {
		case 0:
			s.reset()
		case 4:
			n := 1
			if sub := p.subs(i); len(sub) > 0 {
				n = int(sub[0])
			}
			s.setUnderline(n)
		case 21:
			s.setUnderline(2)
		case 24:
			s.setUnderline(0)
		case 38, 48, 58:
			i += s.setColor(p, i)
		case 59:
			s.extended &^= colorMask
			s.refresh()
		}
	}
	t.penChanged()
}

// penBits are the bits of fg and bg that a parameter of SGR sets, after it has cleared those of the masks.
type penBits struct{ fg, fgMask, bg, bgMask uint32 }

// sgrBits has the bits of each parameter. Those that do more have none.
var sgrBits = [108]penBits{
	1:  {fg: fgBold},
	2:  {bg: bgDim},
	3:  {bg: bgItalic},
	5:  {fg: fgBlink},
	7:  {fg: fgInverse},
	8:  {fg: fgInvisible},
	9:  {fg: fgStrike},
	22: {fgMask: fgBold, bgMask: bgDim},
	23: {bgMask: bgItalic},
	25: {fgMask: fgBlink},
	27: {fgMask: fgInverse},
	28: {fgMask: fgInvisible},
	29: {fgMask: fgStrike},
	39: {fgMask: colorMask},
	49: {bgMask: colorMask},
	53: {bg: bgOverline},
	55: {bgMask: bgOverline},
}

func init() {
	for n := range uint32(8) {
		sgrBits[30+n] = penBits{fg: colorMode16 | n, fgMask: colorMask}
		sgrBits[40+n] = penBits{bg: colorMode16 | n, bgMask: colorMask}
		sgrBits[90+n] = penBits{fg: colorMode16 | 8 | n, fgMask: colorMask}
		sgrBits[100+n] = penBits{bg: colorMode16 | 8 | n, bgMask: colorMask}
	}
}

// reset executes SGR 0, which removes the protection of DECSCA and leaves the link open.
func (s *style) reset() {
	s.fg, s.bg, s.extended = 0, 0, 0
	s.refresh()
}

func (s *style) setUnderline(n int) {
	if n < 0 || n > 5 {
		n = 1
	}
	s.extended = s.extended&^underlineMask | uint32(n)<<underlineShift
	if n == 0 {
		s.fg &^= fgUnderline
	} else {
		s.fg |= fgUnderline
	}
	s.refresh()
}

// setColor sets the colour that begins with parameter i. Its value is in sub-parameters
// (38:2::r:g:b or 38:5:n; 38:2:r:g:b without a colour space is not supported) or in the next
// parameters (38;2;r;g;b or 38;5;n). setColor returns the number of these that it has used.
func (s *style) setColor(p *params, i int) int {
	if p.nsub == 0 { // nearly always true
		switch {
		case i+2 < p.n && p.v[i+1] == 5:
			s.putColor(p.v[i], colorModeP|uint32(p.v[i+2]&255))
			return 2
		case i+4 < p.n && p.v[i+1] == 2:
			s.putColor(p.v[i], colorModeRG|uint32(p.v[i+2]&255)<<16|uint32(p.v[i+3]&255)<<8|uint32(p.v[i+4]&255))
			return 4
		}
	}
	// Target, mode, colour space, and three values. A palette uses only the first of these.
	v := [6]int32{0, 0, -1, 0, 0, 0}
	space, used := 0, 0
	for {
		v[used+space] = p.v[i+used]
		if sub := p.subs(i + used); len(sub) > 0 {
			for k := 0; ; {
				if v[1] == 5 {
					space = 1
				}
				if at := used + k + 1 + space; at < len(v) {
					v[at] = sub[k]
				}
				if k++; k >= len(sub) || k+used+1+space >= len(v) {
					break
				}
			}
			break
		}
		if v[1] == 5 && used+space >= 2 || v[1] == 2 && used+space >= 5 {
			break
		}
		if v[1] != 0 {
			space = 1
		}
		if used++; i+used >= p.n || used+space >= len(v) {
			break
		}
	}
	for k := 2; k < len(v); k++ {
		if v[k] == -1 {
			v[k] = 0
		}
	}
	switch v[1] {
	case 2:
		s.putColor(v[0], colorModeRG|uint32(v[3]&255)<<16|uint32(v[4]&255)<<8|uint32(v[5]&255))
	case 5:
		s.putColor(v[0], colorModeP|uint32(v[3]&255))
	}
	return used
}

// putColor sets the colour of the text (38), of the background (48) or of the underline (58).
func (s *style) putColor(target int32, c uint32) {
	switch target {
	case 38:
		s.fg = s.fg&^colorMask | c
	case 48:
		s.bg = s.bg&^colorMask | c
	case 58:
		s.extended = s.extended&^colorMask | c
	}
}
