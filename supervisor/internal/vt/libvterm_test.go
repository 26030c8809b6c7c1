package vt_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/vt"
	"holdfast/supervisor/internal/vt/vttest"
)

// excuses are the sections of libvterm's tests that contradict xterm.js, by file and title, with the reason. The core
// does what xterm.js does.
var excuses = map[string]string{
	"10state_putglyph Spare combining chars get truncated":                             marks,
	"61screen_unicode 10 combining accents should not crash":                           marks,
	"61screen_unicode 40 combining accents in two split writes of 20 should not crash": marks,

	"11state_movecursor Horizontal Position Backward": "HPB is not known",
	"11state_movecursor Vertical Position Backward":   "VPB is not known",
	"13state_edit IL":                                        "IL and DL go to the first column, as ECMA-48 has it",
	"13state_edit DECRQSS on DECSCA":                         "DECSCA 2 is reported as 0, which means the same",
	"14state_encoding SS2":                                   shifts,
	"14state_encoding SS3":                                   shifts,
	"14state_encoding LS1R":                                  shifts,
	"14state_encoding LS2R":                                  shifts,
	"14state_encoding LS3R":                                  shifts,
	"26state_query S8C1T on DSR":                             "answers are always of 7 bits",
	"31state_rep REP till end of line":                       "REP continues in the next row",
	"32state_flow EL cancels continuation of following line": "EL leaves the next row alone",

	"12state_scroll DECRQSS on DECSLRM":                          sides,
	"15state_mode Origin mode with DECSLRM":                      sides,
	"15state_mode Origin mode bounds cursor to scrolling region": "CUU and CUD of a cursor that was outside of the region when DECOM was set",

	"17state_mouse DECRQM on standard encoding mode":       encodings,
	"17state_mouse DECRQM on UTF-8 extended encoding mode": encodings,
	"17state_mouse DECRQM on SGR extended encoding mode":   encodings,
	"17state_mouse DECRQM on rxvt extended encoding mode":  encodings,

	"30state_pen Foreground":                                            "38:2 has a colour space before its three values",
	"30state_pen Background":                                            "48:2 has a colour space before its three values",
	"30state_pen Bold+ANSI colour == highbright":                        "the viewer decides whether bold changes a colour",
	"64screen_pen Font":                                                 "fonts are not kept",
	"64screen_pen Super/subscript":                                      "raised and lowered text is not kept",
	"64screen_pen EL sets only colours to end of line, not other attrs": "erasing leaves the background alone",
	"64screen_pen DECSCNM xors reverse for entire screen":               "DECSCNM is not known",

	"28state_dbl_wh Double Width, Single Height":       double,
	"67screen_dbl_wh Double Width, Single Height":      double,
	"67screen_dbl_wh Double Height":                    double,
	"67screen_dbl_wh Late change":                      double,
	"67screen_dbl_wh DWL doesn't spill over on scroll": double,

	"63screen_resize Resize shorter with content must scroll":       "rows below the cursor are dropped first",
	"63screen_resize Resize taller attempts to pop scrollback":      "lines come back from the history only if the cursor is in the last row",
	"69screen_reflow Resize wider reflows wide lines":               cursorLine,
	"69screen_reflow Resize narrower can create continuation lines": cursorLine,
	"69screen_reflow Shell wrapped prompt behaviour":                "the line that is laid out anew comes back from the history as well",
}

const (
	marks      = "a cell takes more than five marks"
	shifts     = "single shifts and GR are not known"
	sides      = "left and right margins are not known"
	encodings  = "the mouse encodings 1005 and 1015 are not known, and reported as always off"
	double     = "rows of double width and height are not known"
	cursorLine = "the line with the cursor is not laid out anew, because its program draws it"
)

// onPurpose are the sections in which the core differs from both.
var onPurpose = map[string]string{
	"26state_query XTVERSION":                             "we have a name of our own",
	"26state_query DECRQSS on SGR":                        sgrAnswer,
	"26state_query DECRQSS on SGR ANSI colours":           sgrAnswer,
	"26state_query DECRQSS on SGR ANSI hi-bright colours": sgrAnswer,
	"26state_query DECRQSS on SGR 256-palette colours":    sgrAnswer,
	"26state_query DECRQSS on SGR RGB8 colours":           sgrAnswer,
}

const sgrAnswer = "the reply has the whole style, from SGR 0 on; that of xterm.js has SGR 0 alone"

// TestLibvterm runs libvterm's own tests of screen, cursor, pen and replies. Its tests of callbacks, keys, mouse and
// parser do not apply to the core.
func TestLibvterm(t *testing.T) {
	unused := maps.Clone(excuses)
	maps.Copy(unused, onPurpose)
	facts := 0
	eachVtermFact(t, func(t *testing.T, section string, f vtermFact, done []vttest.Step) {
		facts++
		got, want := f.ofCore(done)
		if got == want {
			return
		}
		if _, excused := excuses[section]; !excused && onPurpose[section] == "" {
			t.Errorf("line %d: %s: got %s, want %s", f.line, f.what, got, want)
		}
		delete(unused, section)
	})
	t.Logf("%d facts", facts)
	for _, section := range slices.Sorted(maps.Keys(unused)) {
		t.Errorf("%s is excused, although the core agrees with libvterm", section)
	}
}

// TestLibvtermExcuses checks that the core agrees with xterm.js in the excused sections.
func TestLibvtermExcuses(t *testing.T) {
	oracle := vttest.Open(t)
	eachVtermFact(t, func(t *testing.T, section string, f vtermFact, done []vttest.Step) {
		got, want := f.ofCore(done)
		if got == want || onPurpose[section] != "" {
			return
		}
		xterm, err := f.ofXterm(oracle, done)
		testkit.Must(t, err)
		if xterm != got {
			t.Errorf("line %d: %s: got %s, xterm.js says %s, libvterm %s", f.line, f.what, got, xterm, want)
		}
	})
}

// vtermSection has the steps between two titles.
type vtermSection struct {
	title string
	steps []vtermStep
}

type vtermScript []vtermSection

// vtermStep is an action, with the facts that must hold after it.
type vtermStep struct {
	do    vttest.Step
	fresh bool // the terminal is reset first
	facts []vtermFact
}

// vtermFact is a fact about the terminal, as "what = value".
type vtermFact struct {
	line        int
	what, value string
}

// eachVtermFact calls f for every fact of every file, with the steps since the last reset.
func eachVtermFact(t *testing.T, f func(t *testing.T, section string, f vtermFact, done []vttest.Step)) {
	names, err := filepath.Glob(filepath.Join(vt.Fixtures(t, "libvterm"), "t", "*.test"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no tests of libvterm found: %v", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		testkit.Must(t, err)
		script, err := parseVterm(string(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		file := strings.TrimSuffix(filepath.Base(name), ".test")
		t.Run(file, func(t *testing.T) {
			var done []vttest.Step
			for _, section := range script {
				t.Run(section.title, func(t *testing.T) {
					for _, step := range section.steps {
						if step.fresh {
							done = nil
						}
						done = append(done, step.do)
						for _, fact := range step.facts {
							f(t, file+" "+section.title, fact, done)
						}
					}
				})
			}
		})
	}
}

// libvterm's tests begin with 25 rows. A reset is a resize of a new terminal.
const vtermCols, vtermRows = 80, 25

func (f vtermFact) ofCore(done []vttest.Step) (got, want string) {
	term := vt.New(vt.Config{Cols: vtermCols, Rows: vtermRows, HistoryLines: 100})
	last := len(done) - 1
	vttest.Do(term, done[:last])
	term.Replies()
	vttest.Do(term, done[last:])
	return f.compare(term.State(), string(term.Replies()))
}

func (f vtermFact) ofXterm(o *vttest.Oracle, done []vttest.Step) (xterm string, err error) {
	s := o.New(vttest.Config{Cols: vtermCols, Rows: vtermRows, History: 100})
	defer s.Close()
	last := len(done) - 1
	vttest.Do(s, done[:last])
	if _, err := s.Replies(); err != nil {
		return "", err
	}
	vttest.Do(s, done[last:])
	state, err := s.State()
	if err != nil {
		return "", err
	}
	replies, err := s.Replies()
	xterm, _ = f.compare(state, string(replies))
	return xterm, err
}

// compare returns the value that a state has for the fact, and the expected value, in the same form.
func (f vtermFact) compare(s *vt.State, replies string) (got, want string) {
	b := &s.Normal
	if s.Alternate != nil {
		b = s.Alternate
	}
	screen := b.Lines[b.History:]
	args := strings.Fields(f.what)
	numbers := vtermNumbers(args[len(args)-1])
	switch args[0] {
	case "output":
		return strconv.Quote(replies), f.value
	case "?cursor":
		return fmt.Sprintf("%d,%d", b.Y, min(b.X, s.Cols-1)), f.value
	case "?lineinfo":
		if screen[numbers[0]].Wrapped {
			got = "cont"
		}
		return got, f.value
	case "?pen":
		return vtermPen(s.Attrs[s.Pen], args[1]), vtermColor(f.value)
	case "?screen_row":
		return vtermText(screen[numbers[0]:numbers[0]+1], 0, s.Cols), trimQuoted(f.value)
	case "?screen_chars", "?screen_text":
		r := numbers
		return vtermText(screen[r[0]:r[2]], r[1], r[3]), trimQuoted(f.value)
	case "?screen_cell":
		c := vtermCell(screen[numbers[0]], numbers[1])
		a := s.Attrs[c.Attr]
		return fmt.Sprintf("{%s} width=%d attrs={%s} fg=%s bg=%s", vtermCodes(c.Text), c.Width, vtermFlags(a), colorName(a.Fg), colorName(a.Bg)),
			vtermColor(f.value)
	case "putglyph":
		c := vtermCell(screen[numbers[0]], numbers[1])
		got = fmt.Sprintf("%s %d", vtermCodes(c.Text), c.Width)
		if s.Attrs[c.Attr].Flags&vt.Protected != 0 {
			got += " prot"
		}
		return got, f.value
	}
	panic("vterm: " + f.what)
}

// vtermNumbers parses a list as "1,2".
func vtermNumbers(list string) (numbers []int) {
	for _, n := range strings.Split(list, ",") {
		v, err := strconv.Atoi(n)
		if err != nil {
			return nil
		}
		numbers = append(numbers, v)
	}
	return numbers
}

func vtermCell(l vt.Line, x int) vt.Cell {
	if x < len(l.Cells) {
		return l.Cells[x]
	}
	return vt.Cell{Width: 1}
}

// vtermText returns the text of the columns [x0, x1) in quotes, without empty cells at the end of a line.
func vtermText(lines []vt.Line, x0, x1 int) string {
	var rows []string
	for _, l := range lines {
		var b strings.Builder
		for x := x0; x < min(x1, len(l.Cells)); x++ {
			switch c := l.Cells[x]; {
			case c.Text != "":
				b.WriteString(c.Text)
			case c.Width > 0:
				b.WriteByte(' ')
			}
		}
		rows = append(rows, b.String())
	}
	return trimQuoted(strconv.Quote(strings.Join(rows, "\n")))
}

// trimQuoted removes the blanks at the end of each line of a quoted text.
func trimQuoted(quoted string) string {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		panic("vterm: " + quoted)
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strconv.Quote(strings.Join(lines, "\n"))
}

func vtermCodes(text string) string {
	var codes []string
	for _, ch := range text {
		codes = append(codes, fmt.Sprintf("%#x", ch))
	}
	return strings.Join(codes, ",")
}

func vtermFlags(a vt.Attr) (flags string) {
	for _, f := range []struct {
		on   bool
		name string
	}{
		{a.Flags&vt.Bold != 0, "B"}, {a.Underline != 0, fmt.Sprintf("U%d", a.Underline)}, {a.Flags&vt.Italic != 0, "I"},
		{a.Flags&vt.Blink != 0, "K"}, {a.Flags&vt.Inverse != 0, "R"},
	} {
		if f.on {
			flags += f.name
		}
	}
	return flags
}

func vtermPen(a vt.Attr, what string) string {
	onOff := func(f vt.Flags) string {
		if a.Flags&f != 0 {
			return "on"
		}
		return "off"
	}
	switch what {
	case "bold":
		return onOff(vt.Bold)
	case "italic":
		return onOff(vt.Italic)
	case "blink":
		return onOff(vt.Blink)
	case "reverse":
		return onOff(vt.Inverse)
	case "underline":
		return strconv.Itoa(a.Underline)
	case "foreground":
		return colorName(a.Fg)
	case "background":
		return colorName(a.Bg)
	}
	return "unknown"
}

func colorName(c uint32) string {
	switch v := c & 0xffffff; c >> 24 {
	case 0:
		return "default"
	case 3:
		return fmt.Sprintf("rgb(%d,%d,%d)", v>>16, v>>8&255, v&255)
	default:
		return fmt.Sprintf("idx(%d)", v)
	}
}

// vtermColor returns a colour under the core's name. libvterm has the values of its palette in cells.
func vtermColor(value string) string {
	return strings.NewReplacer(
		"rgb(240,240,240,is_default_fg)", "default", "rgb(0,0,0,is_default_bg)", "default",
		"rgb(240,240,240)", "default", "rgb(0,0,0)", "default",
		"rgb(224,0,0)", "idx(1)", "rgb(0,224,0)", "idx(2)", "rgb(224,224,0)", "idx(3)", "rgb(0,0,224)", "idx(4)",
	).Replace(value)
}

// vtermParser parses the language of libvterm's tests.
type vtermParser struct {
	script  vtermScript
	size    [2]int // columns, rows
	utf8    bool
	foreign bool // the last step is not output of a program
}

func parseVterm(text string) (vtermScript, error) {
	p := &vtermParser{script: vtermScript{{title: "Start"}}, size: [2]int{vtermCols, vtermRows}}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		for _, l := range repeatedLines(line) {
			if err := p.line(i+1, l); err != nil {
				return nil, fmt.Errorf("line %d: %q: %w", i+1, line, err)
			}
		}
	}
	return p.script, nil
}

var repeatedLine = regexp.MustCompile(`^\$(REP|SEQ) +(\d+) *(\d*): *(.*)$`)

// repeatedLines expands "$REP n: line" and "$SEQ from to: line", in which \# is the number.
func repeatedLines(line string) (lines []string) {
	m := repeatedLine.FindStringSubmatch(line)
	if m == nil {
		return []string{line}
	}
	from, _ := strconv.Atoi(m[2])
	to, _ := strconv.Atoi(m[3])
	if m[1] == "REP" {
		from, to = 1, from
	}
	for n := from; n <= to; n++ {
		lines = append(lines, strings.ReplaceAll(m[4], `\#`, strconv.Itoa(n)))
	}
	return lines
}

func (p *vtermParser) line(number int, line string) error {
	if title, ok := strings.CutPrefix(line, "!"); ok {
		p.script = append(p.script, vtermSection{title: strings.TrimSpace(title)})
		return nil
	}
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch {
	case word == "INIT" || word == "RESET":
		if word == "INIT" {
			p.size, p.utf8 = [2]int{vtermCols, vtermRows}, false
		}
		p.add(vtermStep{fresh: true, do: vttest.Step{Cols: p.size[0], Rows: p.size[1]}})
	case word == "UTF8":
		p.utf8 = rest == "1"
	case word == "RESIZE":
		size := vtermNumbers(rest)
		p.size = [2]int{size[1], size[0]}
		p.add(vtermStep{do: vttest.Step{Cols: p.size[0], Rows: p.size[1]}})
	case word == "PUSH":
		data, err := vtermString(rest)
		if !p.utf8 { // each byte is a character
			data = string([]rune(latin1(data)))
		}
		p.add(vtermStep{do: vttest.Step{Write: []byte(data)}})
		return err
	case strings.HasPrefix(word, "WANT") || word == "" || word[0] == '#':
	case word[0] >= 'A' && word[0] <= 'Z': // input of keys and the mouse, and default colours, do not apply
		p.foreign = true
	case !p.foreign:
		return p.fact(number, word, rest)
	}
	return nil
}

func latin1(data string) (runes []rune) {
	for i := range len(data) {
		runes = append(runes, rune(data[i]))
	}
	return runes
}

func (p *vtermParser) add(s vtermStep) {
	last := &p.script[len(p.script)-1]
	last.steps = append(last.steps, s)
	p.foreign = false
}

// fact adds a fact to the last step, unless the core has no value to compare with it.
func (p *vtermParser) fact(number int, word, rest string) (err error) {
	last := &p.script[len(p.script)-1]
	if len(last.steps) == 0 { // the fact belongs to the section before
		last = &p.script[len(p.script)-2]
	}
	step := &last.steps[len(last.steps)-1]
	what, value, _ := strings.Cut(rest, "=")
	f := vtermFact{line: number, what: word + " " + strings.TrimSpace(what), value: strings.TrimSpace(value)}
	switch word {
	case "output":
		f.what = word
		if f.value, err = vtermString(rest); err != nil {
			return err
		}
		f.value = strconv.Quote(f.value)
		if k := len(step.facts); k > 0 && step.facts[k-1].what == word {
			step.facts[k-1].value = step.facts[k-1].value[:len(step.facts[k-1].value)-1] + f.value[1:]
			return nil
		}
	case "putglyph":
		glyph := strings.Fields(rest)
		f.what = word + " " + glyph[2]
		f.value = strings.Join(append(vtermGlyph(glyph[0]), glyph[1]), " ")
		if len(glyph) > 3 && glyph[3] == "prot" {
			f.value += " prot"
		}
		// Only the last glyph at a place can be seen afterwards.
		step.facts = slices.DeleteFunc(step.facts, func(g vtermFact) bool { return g.what == f.what })
	case "?screen_row", "?screen_chars", "?screen_text":
		if f.value, err = vtermValue(f.value, word == "?screen_text"); err != nil {
			return err
		}
	case "?pen":
		switch strings.TrimSpace(what) {
		case "font", "small", "baseline": // the core has no fonts and no raised letters
			return nil
		}
	case "?lineinfo", "?screen_cell", "?cursor":
	default:
		return nil
	}
	step.facts = append(step.facts, f)
	return nil
}

// vtermGlyph returns the code points of "0x65,0x0301" in the form of the core.
func vtermGlyph(codes string) []string {
	var text string
	for _, code := range strings.Split(codes, ",") {
		n, err := strconv.ParseUint(code, 0, 32)
		if err != nil {
			return []string{codes}
		}
		text += string(rune(n))
	}
	return []string{vtermCodes(text)}
}

// vtermValue parses a text in quotes, or its characters or bytes as numbers, and returns it in quotes.
func vtermValue(value string, bytes bool) (quoted string, err error) {
	if strings.HasPrefix(value, `"`) {
		text, err := vtermString(value)
		return strconv.Quote(text), err
	}
	var text []byte
	for _, code := range strings.FieldsFunc(value, func(ch rune) bool { return ch == ',' || ch == ' ' }) {
		n, err := strconv.ParseUint(code, 0, 32)
		if err != nil {
			return "", err
		}
		if bytes {
			text = append(text, byte(n))
		} else {
			text = append(text, string(rune(n))...)
		}
	}
	return strconv.Quote(string(text)), nil
}

var (
	vtermPart   = regexp.MustCompile(`^\s*(?:\.\s*)?"((?:[^"\\]|\\.)*)"(?:\s*x\s*(\d+))?`)
	vtermEscape = regexp.MustCompile(`\\(?:x\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|.)`)
)

// vtermString parses texts in the syntax of Perl: "a" . "b" x 10.
func vtermString(s string) (string, error) {
	var whole strings.Builder
	for strings.TrimSpace(s) != "" {
		m := vtermPart.FindStringSubmatch(s)
		if m == nil {
			return whole.String(), fmt.Errorf("not a text: %s", s)
		}
		times := 1
		if m[2] != "" {
			times, _ = strconv.Atoi(m[2])
		}
		part := vtermEscape.ReplaceAllStringFunc(m[1], unescapeVterm)
		whole.WriteString(strings.Repeat(part, times))
		s = s[len(m[0]):]
	}
	return whole.String(), nil
}

func unescapeVterm(e string) string {
	if code, ok := strings.CutPrefix(e, `\x{`); ok {
		n, _ := strconv.ParseUint(strings.TrimSuffix(code, "}"), 16, 8)
		return string([]byte{byte(n)})
	}
	if code, ok := strings.CutPrefix(e, `\x`); ok && len(code) == 2 {
		n, _ := strconv.ParseUint(code, 16, 8)
		return string([]byte{byte(n)})
	}
	if at := strings.IndexByte("eabtnfr", e[1]); at >= 0 {
		return "\x1b\a\b\t\n\f\r"[at : at+1]
	}
	return e[1:]
}
