package vt

var defaultModes = Modes{Wraparound: true, Mouse: "NONE", MouseEncoding: "DEFAULT"}

// resetModes resets what both DECSTR and RIS reset.
func (t *Term) resetModes() {
	m, d := &t.modes, defaultModes
	m.ApplicationCursor, m.ApplicationKeypad = d.ApplicationCursor, d.ApplicationKeypad
	m.Origin, m.Wraparound, m.ReverseWrap, m.Insert = d.Origin, d.Wraparound, d.ReverseWrap, d.Insert
	m.BracketedPaste, m.Focus, m.Synchronized = d.BracketedPaste, d.Focus, d.Synchronized
	m.CursorStyle = d.CursorStyle
}

// Modes returns what modes are set.
func (t *Term) Modes() Modes { return t.modes }

// FocusAsked returns how often mode 1004 was set so far, be it again: each time
// a terminal that has the focus may tell it.
func (t *Term) FocusAsked() uint64 { return t.focusAsked }

// setModes is SM and RM.
func (t *Term) setModes(on bool) {
	for _, v := range t.par.v[:t.par.n] {
		switch v {
		case 4:
			t.modes.Insert = on
		case 20:
			t.modes.NewLine = on
		}
	}
}

// setPrivateModes is DECSET and DECRST.
func (t *Term) setPrivateModes(on bool) {
	for _, v := range t.par.v[:t.par.n] {
		t.setPrivateMode(int(v), on)
	}
}

func (t *Term) setPrivateMode(n int, on bool) {
	m := &t.modes
	switch n {
	case 1:
		m.ApplicationCursor = on
	case 2:
		if on { // DECANM: VT100 mode
			for g := range t.gsets {
				t.designate(g, nil)
			}
		}
	case 6:
		m.Origin = on
		t.setCursor(0, 0)
	case 7:
		m.Wraparound = on
	case 9:
		t.setMouse("X10", on)
	case 12:
		m.CursorBlink = on
	case 25:
		m.CursorHidden = !on
	case 45:
		m.ReverseWrap = on
	case 47, 1047, 1049:
		t.setAlternate(n, on)
	case 66:
		m.ApplicationKeypad = on
	case 1000:
		t.setMouse("VT200", on)
	case 1002:
		t.setMouse("DRAG", on)
	case 1003:
		t.setMouse("ANY", on)
	case 1004:
		m.Focus = on
		t.focusAsked += uint64(modeBit(on))
	case 1007:
		m.AlternateScroll = knownMode(on)
	case 1006:
		t.setMouseEncoding("SGR", on)
	case 1016:
		t.setMouseEncoding("SGR_PIXELS", on)
	case 1048:
		if on {
			t.saveCursor()
		} else {
			t.restoreCursor()
		}
	case 2004:
		m.BracketedPaste = on
	case 2026:
		m.Synchronized = on
	case 2027:
		m.Graphemes = on
	case 2031:
		m.ColorScheme = on
	case 2048:
		m.SizeReports = on
		t.TellSize()
	case 9001:
		m.Win32Input = on
	}
}

// TellSize reports the size, if mode 2048 is set (the specification is
// gist.github.com/rockorager/e695fb2924d36b2bcf1fff4a3704bd83): rows, columns,
// and both in pixels, 0 if they are not known. A terminal that shows the output
// must not report, because its size may be another one.
func (t *Term) TellSize() {
	if t.modes.SizeReports {
		a := &t.look
		t.replyAlone("\x1b[48;%d;%d;%d;%dt", t.rows, t.cols, t.rows*a.CellHeight, t.cols*a.CellWidth)
	}
}

func (t *Term) setMouse(protocol string, on bool) {
	if !on {
		protocol = defaultModes.Mouse
	}
	t.modes.Mouse = protocol
}

func (t *Term) setMouseEncoding(encoding string, on bool) {
	if !on {
		encoding = defaultModes.MouseEncoding
	}
	t.modes.MouseEncoding = encoding
}

// setAlternate shows the alternate screen, which is empty then, or the normal
// one again. 1049 saves and restores the cursor as well.
func (t *Term) setAlternate(n int, on bool) {
	if on && n == 1049 {
		t.saveCursor()
	}
	switch {
	case on && t.b != &t.alt:
		x, y := t.b.x, t.b.y
		a := &t.alt
		t.work += rowWork * t.rows
		a.open(t.cols, t.rows, t.eraseID)
		a.x, a.y = x, y
		t.b = a
	case !on && t.b == &t.alt:
		a := &t.alt
		t.normal.x, t.normal.y = a.x, a.y
		a.reset(t.cols, t.rows)
		t.b = &t.normal
	}
	if !on && n == 1049 {
		t.restoreCursor()
	}
}

// setModifyOtherKeys is XTMODKEYS, of which we keep the resource 4.
func (t *Term) setModifyOtherKeys() {
	if t.par.v[0] == 4 {
		t.keyboard.ModifyOtherKeys = min(t.par.at(1, 0), 2)
	}
}

// kitty sets, pushes, pops or tells the flags of the kitty keyboard protocol
// (sw.kovidgoyal.net/kitty/keyboard-protocol), which each screen has for itself.
func (t *Term) kitty(op byte) {
	k := &t.keyboard.Kitty[0]
	if t.b == &t.alt {
		k = &t.keyboard.Kitty[1]
	}
	flags := t.par.at(0, 0) & 31
	switch op {
	case '=':
		switch t.par.at(1, 1) {
		case 1:
			k.Flags = flags
		case 2:
			k.Flags |= flags
		case 3:
			k.Flags &^= flags
		}
	case '>':
		if len(k.Stack) == maxKeyboard {
			k.Stack = append(k.Stack[:0], k.Stack[1:]...)
		}
		k.Stack = append(k.Stack, k.Flags)
		k.Flags = flags
	case '<':
		n := t.par.at(0, 1)
		if n > len(k.Stack) {
			k.Stack, k.Flags = k.Stack[:0], 0
			return
		}
		k.Flags = k.Stack[len(k.Stack)-n]
		k.Stack = k.Stack[:len(k.Stack)-n]
	case '?':
		t.replyf("\x1b[?%du", k.Flags)
	}
}

// windowOp is XTWINOPS: the stacks of titles, and sizes.
func (t *Term) windowOp() {
	which := t.par.at(1, 0)
	switch t.par.v[0] {
	case 14:
		if which == 0 { // 2 is the window with its frame
			t.tellPixels(4, t.cols, t.rows)
		}
	case 16:
		t.tellPixels(6, 1, 1)
	case 18:
		t.replyf("\x1b[8;%d;%dt", t.rows, t.cols)
	case 22:
		if which == 0 || which == 2 {
			t.titleStack = pushTitle(t.titleStack, t.title)
		}
		if which == 0 || which == 1 {
			t.iconStack = pushTitle(t.iconStack, t.icon)
		}
	case 23:
		if k := len(t.titleStack); k > 0 && (which == 0 || which == 2) {
			title := t.titleStack[k-1]
			t.titleStack = t.titleStack[:k-1]
			t.setTitle(title)
		}
		if k := len(t.iconStack); k > 0 && (which == 0 || which == 1) {
			t.icon = t.iconStack[k-1]
			t.iconStack = t.iconStack[:k-1]
		}
	}
}

func pushTitle(stack []string, s string) []string {
	if len(stack) == maxStack {
		stack = append(stack[:0], stack[1:]...)
	}
	return append(stack, s)
}
