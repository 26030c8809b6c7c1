//go:build linux

package cli

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// castEvents returns the header and the events of a recording.
func castEvents(t *testing.T, text string) (header map[string]any, events [][]any) {
	t.Helper()
	for i, line := range strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n") {
		if i == 0 {
			header = decode[map[string]any](t, line)
			continue
		}
		events = append(events, decode[[]any](t, line))
	}
	return header, events
}

// printedIn returns the output in the events of a recording.
func printedIn(events [][]any) string {
	var b strings.Builder
	for _, e := range events {
		if e[1] == "o" {
			b.WriteString(e[2].(string))
		}
	}
	return b.String()
}

// played returns the output of asciinema for a recording.
func (w *world) played(name string) string {
	w.T.Helper()
	path, err := exec.LookPath("asciinema")
	if err != nil {
		w.T.Skip("no asciinema")
	}
	cmd := exec.Command(path, "cat", w.Path(name))
	cmd.Env = append(w.Env, "LC_ALL=C.UTF-8")
	p := w.openPipe(cmd) // asciinema needs a terminal too
	code := p.wait()
	<-p.ended
	if code != 0 {
		w.T.Fatalf("asciinema cat: exit %d, %s", code, p.text())
	}
	return p.text()
}

func TestRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `stty -echo; printf '\033]0;a title\007before\n'; read x; printf 'h\303'; read x; printf '\244lf\377\n'; read x; printf after`)
	w.shows("s", "before")
	b := w.begin("record", "s", "-o", w.Path("s.cast"), "--idle-limit", "1500ms")
	recorded := func(want string) {
		t.Helper()
		if !eventually(func() bool { return strings.Contains(w.read("s.cast"), want) }) {
			t.Fatalf("%q is not recorded: %s", want, w.read("s.cast"))
		}
	}
	recorded("before")
	w.must("send", "s", "--enter")
	recorded(`"h`) // the first byte of a character is not recorded alone
	w.must("resize", "s", "100x30")
	recorded(`"r","100x30"`)
	w.must("send", "s", "--enter")
	recorded("lf")
	if info := w.object("info", "s", "--json"); info["size"].(map[string]any)["cols"] != 100.0 {
		t.Errorf("the size is %v", info["size"])
	}
	w.Kill(w.Only("proxy")) // the recording must continue
	w.must("send", "s", "--enter")
	if r := w.wait(b); r.Code != 0 || !strings.Contains(r.Errout, "of s to ") || r.Out != "" {
		t.Errorf("record: %v", r)
	}
	h, events := castEvents(t, w.read("s.cast"))
	if h["version"] != 2.0 || h["width"] != 80.0 || h["height"] != 24.0 || h["title"] != "a title" || h["idle_time_limit"] != 1.5 || h["timestamp"].(float64) < 1e9 {
		t.Errorf("the header is %v", h)
	}
	printed := printedIn(events)
	if !strings.HasSuffix(printed, "hälf\ufffd\r\nafter") || strings.Count(printed, "before") != 1 {
		t.Errorf("the recorded output is %q", printed)
	}
	w.fails(66, "proxy export prints what is kept of it", "record", "s", "-o", w.Path("late.cast"))
	w.fails(64, "-o is missing", "record", "s")
	if got := w.played("s.cast"); got != printed {
		t.Errorf("asciinema plays %q, want %q", got, printed)
	}
}

// A recording whose command was killed must be valid up to its end, and record must be able to append to it.
func TestRecordAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", "stty -echo; cat")
	start := func(args ...string) *background {
		return w.begin(append([]string{"record", "s", "-o", w.Path("s.cast")}, args...)...)
	}
	recorded := func(text string) {
		t.Helper()
		if !eventually(func() bool {
			return strings.Contains(w.read("s.cast"), `"version":2`) && w.object("info", "s", "--json")["attachments"] == 1.0
		}) {
			t.Fatal("record has not attached within the limit")
		}
		w.must("send", "s", text, "--enter")
		if !eventually(func() bool { return strings.Contains(w.read("s.cast"), text) }) {
			t.Fatalf("%s is not recorded: %s", text, w.read("s.cast"))
		}
	}
	b := start()
	recorded("first")
	testkit.Must(t, b.Kill())
	w.wait(b)
	if !eventually(func() bool { return w.object("info", "s", "--json")["attachments"] == 0.0 }) {
		t.Fatal("the killed record is still attached")
	}
	w.fails(73, "--overwrite replaces it", "record", "s", "-o", w.Path("s.cast"))
	b = start("--append", "--title", "other")
	recorded("second")
	testkit.Must(t, b.Signal(syscall.SIGINT))
	if r := w.wait(b); r.Code != 0 || !strings.Contains(r.Errout, "--title and --idle-limit have no effect") {
		t.Errorf("ctrl-c: %v", r)
	}
	_, events := castEvents(t, w.read("s.cast"))
	last := 0.0
	for _, e := range events {
		if at := e[0].(float64); at < last {
			t.Errorf("event %v follows the time %v", e, last)
		} else {
			last = at
		}
	}
	if got := w.played("s.cast"); got != printedIn(events) || !strings.Contains(got, "second") {
		t.Errorf("asciinema plays %q", got)
	}
}

// With --input, a recording must contain the input. If the terminal does not echo, the recording must contain
// only the length of the input. A recorder must not change the session's size.
func TestRecordInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `echo name; read x; stty -echo; echo password; read x; stty size`)
	w.shows("s", "name")
	b := w.begin("record", "s", "-o", w.Path("s.cast"), "--input")
	if !eventually(func() bool { return strings.Contains(w.read("s.cast"), "name") }) {
		t.Fatalf("nothing is recorded: %s", w.read("s.cast"))
	}
	w.must("send", "s", "añ", "--enter")
	w.shows("s", "password")
	w.must("send", "s", "sécret", "--enter")
	if r := w.wait(b); r.Code != 0 {
		t.Fatal(r)
	}
	_, events := castEvents(t, w.read("s.cast"))
	typed := ""
	for _, e := range events {
		if e[1] == "i" {
			typed += e[2].(string)
		}
	}
	if text := w.read("s.cast"); !strings.HasPrefix(typed, "añ\r******") || strings.Contains(text, "cret") || !strings.Contains(text, "24 80") {
		t.Errorf("the recorded input is %q in %s", typed, text)
	}
	if got := w.played("s.cast"); got != printedIn(events) {
		t.Errorf("asciinema plays %q", got)
	}
}

// A command whose output lacks a part of what was asked for says so.
func TestOutputTooLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `yes 0123456789012345678901234567890123456789012345678901234567890123456789 | head -1000; printf '%070000d.\n' 7; echo done; read x`)
	w.shows("s", "done")
	for command, says := range map[string]string{
		"export s":                        "only the beginning of 1 line follows",
		"export s --format html":          "only the beginning of 1 line follows",
		"history s":                       "only the beginning of 1 line follows",
		"screen s --scrollback --html":    "the first lines are left out",
		"export s --from 0":               "",
		"history s --lines 10 --before 5": "",
		"screen s --html":                 "",
		"screen s --scrollback":           "",
		"screen s --scrollback --json":    "", // it has the field truncated
	} {
		if r := w.proxy(strings.Fields(command)...); r.Code != 0 || !strings.Contains(r.Errout, says) || says == "" && r.Errout != "" {
			t.Errorf("%s: code %d, %q, want %q", command, r.Code, r.Errout, says)
		}
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.shell("s", `stty -echo; seq 1 50; printf '\033[1;31mred\033[m & <b>\n\033]8;;http://a/\033\\link\033]8;;\033\\\n%0100d\nh\303\244lf' 7; read x`)
	w.shows("s", "hälf")
	lines := ""
	for i := 1; i <= 50; i++ {
		lines += strconv.Itoa(i) + "\n"
	}
	text := lines + "red & <b>\nlink\n" + strings.Repeat("0", 99) + "7\nhälf\n"
	for _, when := range []string{"alive", "ended"} {
		if got := w.must("export", "s"); got != text {
			t.Errorf("%s: export prints %q, want %q", when, got, text)
		}
		if got, want := w.must("export", "s", "--format", "ansi"), strings.Replace(text, "red", "\x1b[1;38;5;1mred\x1b[0m", 1); got != want {
			t.Errorf("%s: ansi is %q, want %q", when, got, want)
		}
		html := w.must("export", "s", "--format", "html")
		for _, want := range []string{"<pre ", "\n49\n50\n", ">red</span> &amp; &lt;b&gt;\n", `<a href="http://a/"`, ">link</a>", "7\nhälf\n</pre>\n"} {
			if !strings.Contains(html, want) {
				t.Errorf("%s: html lacks %q: %s", when, want, html)
			}
		}
		if out := w.must("export", "s", "--format", "cast", "-o", w.Path(when+".cast")); out != "" {
			t.Errorf("%s: export -o prints %q", when, out)
		}
		h, events := castEvents(t, w.read(when+".cast"))
		raw := printedIn(events)
		if h["width"] != 80.0 || !strings.HasPrefix(raw, "1\r\n2\r\n") || !strings.Contains(raw, "7\r\nhälf") {
			t.Errorf("%s: the recording is %v %q", when, h, raw)
		}
		if when == "alive" {
			w.must("send", "s", "--enter")
			w.must("wait", "s")
		}
	}
	w.fails(73, "--overwrite replaces it", "export", "s", "-o", w.Path("ended.cast"))
	w.must("export", "s", "-o", w.Path("ended.cast"), "--overwrite")
	w.fails(73, "is a directory", "export", "s", "-o", w.Dir)
	w.must("export", "s", "-o", "/dev/null")
	w.must("export", "s", "--format", "cast", "--from", "0", "-o", "/dev/null")
	w.fails(74, "no space left on device", "export", "s", "--format", "cast", "--from", "0", "-o", "/dev/full")
	for _, command := range []string{"export s", "export s --from 0"} { // a file that cannot be written, as on a full disk, must not remain
		if r := w.run(exec.Command("/bin/bash", "-c", "ulimit -f 0; exec proxy "+command+" -o large"), nil); r.Code != 74 || !strings.Contains(r.Errout, "file too large") {
			t.Errorf("%s: %v, want 74", command, r)
		}
	}
	w.must("export", "s", "-o", "large")
	if w.read("ended.cast") != text {
		t.Error("--overwrite did not replace the file")
	}
	w.fails(64, "--format", "export", "s", "--format", "pdf")
	w.fails(66, "session_not_found", "export", "none")

	// The export must contain the screen of a full-screen program after the output that it covers.
	w.shell("full", `echo covered; printf '\033[?1049h\033[Hshown'; read x`)
	w.shows("full", "shown")
	if got := w.must("export", "full"); got != "covered\nshown\n" {
		t.Errorf("export of a full screen: %q", got)
	}
	if got := w.played("alive.cast"); !strings.Contains(got, "hälf") {
		t.Errorf("asciinema plays %q", got)
	}
}
