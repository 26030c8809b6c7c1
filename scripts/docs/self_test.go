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

// check must report each mistake in the marks of a page, with its line.
func TestCheck(t *testing.T) {
	for want, b := range map[string]block{
		"p:3: unknown mark todo":              {page: "p", line: 3, lang: "sh", marks: map[string]string{"todo": "later"}},
		"p:3: the reason is too short":        {page: "p", line: 3, lang: "sh", marks: map[string]string{"not run": "no"}},
		"p:3: no later block uses x.js":       {page: "p", line: 3, lang: "js", marks: map[string]string{"file": "x.js"}},
		"p:3: the only value of in is source": {page: "p", line: 3, lang: "sh", marks: map[string]string{"in": "root"}},
		"p:3: it is no part of go.mod":        {page: "p", line: 3, lang: "js", text: "module other", marks: map[string]string{"part of": "go.mod"}},
		"":                                    {page: "p", line: 3, lang: "yaml", marks: map[string]string{"todo": "later"}},
		" ":                                   {page: "p", line: 3, lang: "sh"},
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

// When a world ends, all processes that it has started must end: both programs, a session's child, and
// processes in the background.
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
		t.Errorf("processes still run: %v", left)
	}
}

// A block that hangs must be ended, with all processes that it has started.
func TestHangs(t *testing.T) {
	w := newWorld(t)
	w.limit = 300 * time.Millisecond
	if _, err := w.shell(w.path("home"), "sleep 1000 & sleep 1000"); err == nil || !strings.Contains(err.Error(), "did not end") {
		t.Errorf("got %v", err)
	}
	testkit.Eventually(t, limit, func() bool { return len(w.Running("")) == 0 }, "both have ended")
}
