package docs

import (
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

func TestLike(t *testing.T) {
	for _, tt := range []struct {
		text, pattern string
		want          bool
	}{
		{"a\r\nb  \n", "a\nb\n", true},
		{"pid 7, up 3s\n", "pid …, up …\n", true},
		{"one\ntwo\nthree\n", "one\n…\nthree\n", true},
		{"one\n", "one\ntwo\n", false},
		{"(a)", "(b)", false},
		{"xone", "one", false},
	} {
		if got := like(tt.text, tt.pattern); got != tt.want {
			t.Errorf("%q like %q: %v", tt.text, tt.pattern, got)
		}
	}
}

// What is wrong with a page's marks is said, with its line.
func TestCheck(t *testing.T) {
	for want, b := range map[string]block{
		"p:3: there is no mark todo":      {page: "p", line: 3, lang: "sh", marks: map[string]string{"todo": "later"}},
		"p:3: that is no reason":          {page: "p", line: 3, lang: "sh", marks: map[string]string{"not run": "no"}},
		"p:3: no later block uses x.js":   {page: "p", line: 3, lang: "js", marks: map[string]string{"file": "x.js"}},
		"p:3: in: source is all there is": {page: "p", line: 3, lang: "sh", marks: map[string]string{"in": "root"}},
		"p:3: it is no part of go.mod":    {page: "p", line: 3, lang: "js", text: "module other", marks: map[string]string{"part of": "go.mod"}},
		"":                                {page: "p", line: 3, lang: "yaml", marks: map[string]string{"todo": "later"}},
		" ":                               {page: "p", line: 3, lang: "sh"},
	} {
		if got := strings.Join(check([]block{b}), "; "); got != strings.TrimSpace(want) {
			t.Errorf("%+v: %q, want %q", b, got, want)
		}
	}
}

func TestSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"What is logged": "what-is-logged", "From Node, Electron, or a page": "from-node-electron-or-a-page", "`exit` codes": "exit-codes",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%s: %s, want %s", heading, got, want)
		}
	}
}

// What a world has started ends with it: the two programs, a session's child, and
// what was left in the background.
func TestNothingIsLeft(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip(err)
	}
	var w *world
	t.Run("world", func(t *testing.T) {
		w = newWorld(t)
		out, err := w.shell(w.path("home"), `proxy new -d -- sh -c 'trap "" HUP; sleep 1000'; sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 &`)
		if err != nil || len(w.Running("")) < 5 {
			t.Errorf("%d processes, %v, %s", len(w.Running("")), err, out)
		}
	})
	if left := w.Running(""); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// A block that hangs is ended, with what it has started.
func TestHangs(t *testing.T) {
	w := newWorld(t)
	w.limit = 300 * time.Millisecond
	if _, err := w.shell(w.path("home"), "sleep 1000 & sleep 1000"); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("got %v", err)
	}
	testkit.Eventually(t, limit, func() bool { return len(w.Running("")) == 0 }, "both have ended")
}
