package vt

import (
	"cmp"
	"slices"

	"holdfast/shared/termmode"
)

var defaultModes = Modes{Wraparound: true, Mouse: "NONE", MouseEncoding: "DEFAULT"}

// resetModes resets the modes that both DECSTR and RIS reset, without the other effects of DECRST.
// The table tells which modes these are, but they are written out here because a program may
// reset the terminal very often. A test compares both.
func (t *Term) resetModes() {
	m, d := &t.modes, defaultModes
	m.ApplicationCursor, m.ApplicationKeypad = d.ApplicationCursor, d.ApplicationKeypad
	m.Origin, m.Wraparound, m.ReverseWrap, m.Insert = d.Origin, d.Wraparound, d.ReverseWrap, d.Insert
	m.BracketedPaste, m.Focus, m.Synchronized = d.BracketedPaste, d.Focus, d.Synchronized
	m.CursorStyle = d.CursorStyle
}

// Modes returns the modes.
func (t *Term) Modes() Modes { return t.modes }

// FocusAsked returns how often the program has set mode 1004, even if it was set already. Each
// time a terminal that has the focus may report it.
func (t *Term) FocusAsked() uint64 { return t.focusAsked }

// A modeBinding connects a mode of package termmode with the terminal's state: with a field of
// Modes, or by functions.
type modeBinding struct {
	termmode.Mode
	field  func(*Modes) *bool
	get    func(*Term) bool
	set    func(*Term, bool) // changes the state, and nothing else
	effect func(*Term, bool) // the other effects of DECSET and DECRST, after the state has changed
}

// keeps reports whether the mode has a state.
func (b *modeBinding) keeps() bool { return b.field != nil || b.get != nil }

// isSet returns the state of a mode that has one.
func (b *modeBinding) isSet(t *Term) bool {
	if b.field != nil {
		return *b.field(&t.modes)
	}
	return b.get(t)
}

// report returns the state of the mode for DECRPM.
func (b *modeBinding) report(t *Term) int {
	switch {
	case b.keeps() && b.isSet(t):
		return modeSet
	case b.keeps():
		return modeReset
	case b.Core == termmode.AlwaysSet:
		return modeAlwaysSet
	case b.Core == termmode.AlwaysReset:
		return modeAlwaysReset
	}
	return modeUnknown
}

// change sets or resets the mode.
func (b *modeBinding) change(t *Term, on bool) {
	switch {
	case b.field != nil:
		*b.field(&t.modes) = on
	case b.set != nil:
		b.set(t, on)
	}
	if b.effect != nil {
		b.effect(t, on)
	}
}

// flag binds a mode to a field of Modes.
func flag(field func(*Modes) *bool) modeBinding { return modeBinding{field: field} }

// with adds an effect to a binding.
func (b modeBinding) with(effect func(*Term, bool)) modeBinding {
	b.effect = effect
	return b
}

// mouse binds a mode to a value of Modes.Mouse.
func mouse(protocol string) modeBinding {
	return modeBinding{
		get: func(t *Term) bool { return t.modes.Mouse == protocol },
		set: func(t *Term, on bool) {
			if t.modes.Mouse = defaultModes.Mouse; on {
				t.modes.Mouse = protocol
			}
		},
	}
}

// mouseEncoding binds a mode to a value of Modes.MouseEncoding.
func mouseEncoding(encoding string) modeBinding {
	return modeBinding{
		get: func(t *Term) bool { return t.modes.MouseEncoding == encoding },
		set: func(t *Term, on bool) {
			if t.modes.MouseEncoding = defaultModes.MouseEncoding; on {
				t.modes.MouseEncoding = encoding
			}
		},
	}
}

// alternateScreen binds a mode to the screen that is shown. Only DECSET and DECRST change it.
func alternateScreen(withCursor bool) modeBinding {
	return modeBinding{
		get:    func(t *Term) bool { return t.b == &t.alt },
		effect: func(t *Term, on bool) { t.setAlternate(on, withCursor) },
	}
}

// bound has the bindings of the modes that the core keeps or acts on, by their parameter.
var bound = map[string]modeBinding{
	"4":  flag(func(m *Modes) *bool { return &m.Insert }),
	"20": flag(func(m *Modes) *bool { return &m.NewLine }),

	"?1": flag(func(m *Modes) *bool { return &m.ApplicationCursor }),
	"?2": {effect: func(t *Term, on bool) {
		if on { // VT100 mode
			for g := range t.gsets {
				t.designate(g, nil)
			}
		}
	}},
	"?6":  flag(func(m *Modes) *bool { return &m.Origin }).with(func(t *Term, _ bool) { t.setCursor(0, 0) }),
	"?7":  flag(func(m *Modes) *bool { return &m.Wraparound }),
	"?9":  mouse("X10"),
	"?12": flag(func(m *Modes) *bool { return &m.CursorBlink }),
	"?25": {
		get: func(t *Term) bool { return !t.modes.CursorHidden },
		set: func(t *Term, on bool) { t.modes.CursorHidden = !on },
	},
	"?45":   flag(func(m *Modes) *bool { return &m.ReverseWrap }),
	"?47":   alternateScreen(false),
	"?66":   flag(func(m *Modes) *bool { return &m.ApplicationKeypad }),
	"?1000": mouse("VT200"),
	"?1002": mouse("DRAG"),
	"?1003": mouse("ANY"),
	"?1004": flag(func(m *Modes) *bool { return &m.Focus }).with(func(t *Term, on bool) { t.focusAsked += uint64(modeBit(on)) }),
	"?1006": mouseEncoding("SGR"),
	"?1007": {
		get: func(t *Term) bool { return t.modes.AlternateScroll == KnownSet },
		set: func(t *Term, on bool) { t.modes.AlternateScroll = knownMode(on) },
	},
	"?1016": mouseEncoding("SGR_PIXELS"),
	"?1047": alternateScreen(false),
	"?1048": {
		get: func(*Term) bool { return true }, // as in xterm.js
		effect: func(t *Term, on bool) {
			if on {
				t.saveCursor()
			} else {
				t.restoreCursor()
			}
		},
	},
	"?1049": alternateScreen(true),
	"?2004": flag(func(m *Modes) *bool { return &m.BracketedPaste }),
	"?2026": flag(func(m *Modes) *bool { return &m.Synchronized }),
	"?2027": flag(func(m *Modes) *bool { return &m.Graphemes }),
	"?2031": flag(func(m *Modes) *bool { return &m.ColorScheme }),
	"?2048": flag(func(m *Modes) *bool { return &m.SizeReports }).with(func(t *Term, _ bool) { t.ReportSize() }),
	"?9001": flag(func(m *Modes) *bool { return &m.Win32Input }),
}

// bindings has the modes of the table, in its order.
var bindings = bindModes()

func bindModes() (all []*modeBinding) {
	for _, m := range termmode.All {
		b := bound[m.Parameter()]
		b.Mode = m
		all = append(all, &b)
	}
	return all
}

// ansiModes and privateModes find the modes by number.
var ansiModes, privateModes = newModeIndex(false), newModeIndex(true)

// A modeIndex has, for each number, 1 + the index in bindings, or 0. It is faster than a map:
// programs set and reset modes with each frame that they draw.
type modeIndex []uint8

func newModeIndex(private bool) (x modeIndex) {
	for i, b := range bindings {
		if b.Private == private {
			x = append(x, make([]uint8, max(0, b.Number+1-len(x)))...)
			x[b.Number] = uint8(i + 1)
		}
	}
	return x
}

// find returns the mode with number n, or nil.
func (x modeIndex) find(n int32) *modeBinding {
	if n < 0 || int(n) >= len(x) || x[n] == 0 {
		return nil
	}
	return bindings[x[n]-1]
}

// modesAt returns the modes at a place in a snapshot, ascending by number.
func modesAt(place termmode.Snapshot) (found []*modeBinding) {
	for _, b := range bindings {
		if b.Snapshot == place {
			found = append(found, b)
		}
	}
	slices.SortFunc(found, func(a, b *modeBinding) int { return cmp.Compare(a.Number, b.Number) })
	return found
}

// setModes executes SM, RM, DECSET and DECRST with the modes of one kind.
func (t *Term) setModes(known modeIndex, on bool) {
	for _, v := range t.par.v[:t.par.n] {
		if b := known.find(v); b != nil {
			b.change(t, on)
		}
	}
}

// ReportSize reports the size to the program if mode 2048 is set. The report has rows,
// columns, and both in pixels, which are 0 if the size of a cell is unknown. The specification
// is at gist.github.com/rockorager/e695fb2924d36b2bcf1fff4a3704bd83. A viewer's terminal must
// not report, because its size may differ.
func (t *Term) ReportSize() {
	if t.modes.SizeReports {
		a := &t.appearance
		t.replyRequired("\x1b[48;%d;%d;%d;%dt", t.rows, t.cols, t.rows*a.CellHeight, t.cols*a.CellWidth)
	}
}

// setAlternate shows the alternate screen, which is then empty, or the normal screen again. With
// withCursor it also saves or restores the cursor.
func (t *Term) setAlternate(on, withCursor bool) {
	if on && withCursor {
		t.saveCursor()
	}
	switch {
	case on && t.b != &t.alt:
		x, y := t.b.x, t.b.y
		a := &t.alt
		a.open(t.cols, t.rows, t.eraseID)
		a.x, a.y = x, y
		t.b = a
	case !on && t.b == &t.alt:
		a := &t.alt
		t.normal.x, t.normal.y = a.x, a.y
		a.reset(t.cols, t.rows)
		t.b = &t.normal
	}
	if !on && withCursor {
		t.restoreCursor()
	}
}

// setModifyOtherKeys executes XTMODKEYS. The core has only the resource 4.
func (t *Term) setModifyOtherKeys() {
	if t.par.v[0] == 4 {
		t.keyboard.ModifyOtherKeys = min(t.par.at(1, 0), 2)
	}
}

// kitty sets, pushes, pops or reports the flags of the kitty keyboard protocol
// (sw.kovidgoyal.net/kitty/keyboard-protocol). Each screen has its own flags.
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

// windowOp executes XTWINOPS: the stacks of titles, and questions for sizes.
func (t *Term) windowOp() {
	which := t.par.at(1, 0)
	switch t.par.v[0] {
	case 14:
		if which == 0 { // 2 asks for the window with its frame
			t.reportPixels(4, t.cols, t.rows)
		}
	case 16:
		t.reportPixels(6, 1, 1)
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
