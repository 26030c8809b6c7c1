package vt

import (
	"bytes"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"holdfast/supervisor/internal/picture"
)

// osc executes an operating system command.
func (t *Term) osc(p []byte) {
	num, arg, _ := bytes.Cut(p, []byte(";"))
	n, ok := decimal(num)
	if !ok {
		return
	}
	switch n {
	case 0:
		t.setTitle(clip(arg))
		t.icon = clip(arg)
	case 1:
		t.icon = clip(arg)
	case 2:
		t.setTitle(clip(arg))
	case 4:
		t.palette(string(arg))
	case 7:
		t.setWorkDir(fileURL(string(arg)))
	case 8:
		t.hyperlink(string(arg))
	case 9:
		t.osc9(string(arg))
	case 10, 11, 12:
		t.specialColors(string(arg), n-10)
	case 66:
		t.osc66(arg)
	case 99:
		t.osc99(string(arg))
	case 104:
		t.resetPalette(string(arg))
	case 110, 111, 112:
		delete(t.colors, foreground+n-110)
	case 133:
		t.addMark(p)
		t.promptMark(string(arg))
	case 633:
		t.addMark(p)
		if rest, ok := strings.CutPrefix(string(arg), "E;"); ok {
			line, _, _ := strings.Cut(rest, ";") // a nonce may follow the command line
			t.event(Event{Kind: CommandLine, Text: clip([]byte(unescapeCommand(line)))})
		}
	case 777:
		if rest, ok := strings.CutPrefix(string(arg), "notify;"); ok {
			title, body, _ := strings.Cut(rest, ";")
			t.event(Event{Kind: Notification, Title: clip([]byte(title)), Text: clip([]byte(body))})
		}
	case 7501: // the program status protocol (superlogical.com/rex/docs/build/program-status)
		if string(arg) == "?" {
			t.replyRequired("%s", "\x1b]7501;?\x1b\\")
		} else if len(arg) <= maxReport {
			t.event(Event{Kind: ProgramReported, Text: string(arg)})
		}
	case 1337:
		if dir, ok := strings.CutPrefix(string(arg), "CurrentDir="); ok {
			t.setWorkDir(dir)
		} else if bytes.HasPrefix(p, []byte(picture.FilePrefix)) {
			t.inlineImage(p)
		} else if string(arg) == "ReportCellSize" {
			t.reportCellSize()
		}
	}
	// OSC 52, the clipboard, is executed by viewers alone. Without a viewer there is no
	// clipboard that a program could read or write.
}

// maxReport is the length of the longest report of OSC 7501 (its specification).
const maxReport = 4096

func decimal(p []byte) (int, bool) {
	if len(p) == 0 || len(p) > 9 {
		return 0, false
	}
	n := 0
	for _, b := range p {
		if b-'0' > 9 {
			return 0, false
		}
		n = n*10 + int(b-'0')
	}
	return n, true
}

// clip returns at most maxTitle bytes of p, and cuts only between characters.
func clip(p []byte) string {
	if n := maxTitle; len(p) > n {
		for n > 0 && !utf8.RuneStart(p[n]) {
			n--
		}
		p = p[:n]
	}
	return string(p)
}

func (t *Term) setTitle(s string) {
	if s == t.title {
		return
	}
	t.title = s
	t.event(Event{Kind: TitleChanged, Text: s})
}

// setWorkDir sets the directory that a shell reports. A relative path is ignored, because its
// base is unknown.
func (t *Term) setWorkDir(dir string) {
	if len(dir) > maxTitle || !strings.HasPrefix(dir, "/") || dir == t.workDir {
		return
	}
	t.workDir = dir
	t.event(Event{Kind: WorkDirChanged, Text: dir})
}

// fileURL returns the path of a file URL, or "" if s is no valid file URL.
func fileURL(s string) string {
	if rest, ok := strings.CutPrefix(s, "file://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			if path, err := url.PathUnescape(rest[i:]); err == nil && utf8.ValidString(path) {
				return path
			}
		}
	}
	return ""
}

// osc9 executes OSC 9: a notification (iTerm2), or, if it begins with a number, a command of
// ConEmu. 9;9 sets the directory; 9;4, progress, is ignored like all others.
func (t *Term) osc9(arg string) {
	num, rest, ok := strings.Cut(arg, ";")
	if n, err := strconv.Atoi(num); ok && err == nil {
		if n == 9 {
			t.setWorkDir(strings.Trim(rest, `"`))
		}
		return
	}
	t.event(Event{Kind: Notification, Text: clip([]byte(arg))})
}

// linkTable finds the links that have an id, so that two cells may have the same link.
type linkTable struct {
	byName  map[string]*link
	serials uint32
}

// maxLinks is the largest number of links in a linkTable. A program that opens more links gets
// new ones for ids that it has used before.
const maxLinks = 1 << 10

// hyperlink executes OSC 8. Its argument has parameters, of which id is used, and a URI. If
// the URI is empty, the link ends.
func (t *Term) hyperlink(arg string) {
	params, uri, ok := strings.Cut(arg, ";")
	if !ok {
		return
	}
	params = strings.TrimSpace(params)
	if uri == "" {
		if params == "" {
			t.pen.link = nil
			t.pen.refresh()
			t.penChanged()
		}
		return
	}
	if len(arg) > maxURI {
		uri = "" // text without a link is better than text with a truncated link
		t.pen.link = nil
	} else {
		name := ""
		for _, p := range strings.Split(params, ":") {
			if v, ok := strings.CutPrefix(p, "id="); ok {
				name = v
				break
			}
		}
		t.pen.link = t.links.open(name, uri)
	}
	t.pen.refresh()
	t.penChanged()
}

func (t *linkTable) open(id, uri string) *link {
	key := id + ";" + uri
	if l := t.byName[key]; l != nil && id != "" {
		return l
	}
	t.serials++
	l := &link{id: strings.Clone(id), uri: strings.Clone(uri), serial: t.serials}
	if id != "" {
		if len(t.byName) >= maxLinks {
			clear(t.byName)
		}
		if t.byName == nil {
			t.byName = make(map[string]*link)
		}
		t.byName[key] = l
	}
	return l
}

// Colours have the numbers 0 to 255 of the palette, and these.
const (
	foreground = 256 + iota
	background
	cursorColor
)

// palette executes OSC 4: pairs of an index and a colour, or of an index and ? to ask for the
// colour.
func (t *Term) palette(arg string) {
	for arg != "" {
		var index, spec string
		var ok bool
		if index, arg, ok = strings.Cut(arg, ";"); !ok {
			return
		}
		spec, arg, _ = strings.Cut(arg, ";")
		n, ok := decimal([]byte(index))
		if !ok || n > 255 {
			continue
		}
		if spec == "?" {
			t.reportColor("4;"+strconv.Itoa(n), n)
		} else {
			t.setColor(n, spec)
		}
	}
}

// specialColors executes OSC 10 to 12. Each value is for the next of the three colours, and
// the first value is for the colour first.
func (t *Term) specialColors(arg string, first int) {
	for _, spec := range strings.Split(arg, ";") {
		if first > 2 {
			return
		}
		if spec == "?" {
			t.reportColor(strconv.Itoa(10+first), foreground+first)
		} else {
			t.setColor(foreground+first, spec)
		}
		first++
	}
}

func (t *Term) setColor(n int, spec string) {
	rgb, ok := parseColor(spec)
	if !ok {
		return
	}
	if t.colors == nil {
		t.colors = make(map[int]uint32)
	}
	t.colors[n] = rgb
}

func (t *Term) resetPalette(arg string) {
	if arg == "" {
		for n := range t.colors {
			if n < foreground {
				delete(t.colors, n)
			}
		}
		return
	}
	for _, s := range strings.Split(arg, ";") {
		if n, ok := decimal([]byte(s)); ok && n < foreground {
			delete(t.colors, n)
		}
	}
}

// parseColor parses the forms of XParseColor that xterm.js supports: rgb:r/g/b with one to
// four hexadecimal digits each, which are scaled, and #rgb with as many digits, of which the
// highest 8 bits count.
func parseColor(s string) (rgb uint32, ok bool) {
	var parts []string
	scale := false
	if rest, found := strings.CutPrefix(strings.ToLower(s), "rgb:"); found {
		parts, scale = strings.Split(rest, "/"), true
	} else if rest, found := strings.CutPrefix(s, "#"); found && len(rest)%3 == 0 {
		n := len(rest) / 3
		parts = []string{rest[:n], rest[n : 2*n], rest[2*n:]}
	}
	if len(parts) != 3 {
		return 0, false
	}
	for _, p := range parts {
		if len(p) != len(parts[0]) || len(p) == 0 || len(p) > 4 {
			return 0, false
		}
		v, err := strconv.ParseUint(p, 16, 16)
		if err != nil {
			return 0, false
		}
		bits := 4 * len(p)
		switch {
		case scale:
			top := uint64(1)<<bits - 1
			v = (v*255 + top/2) / top
		case bits == 4:
			v <<= 4
		default:
			v >>= bits - 8
		}
		rgb = rgb<<8 | uint32(v)
	}
	return rgb, true
}
