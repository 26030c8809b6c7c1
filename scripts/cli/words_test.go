//go:build linux

package cli

import (
	"strings"
	"testing"
	"unicode"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// Titles, labels, names, reasons and refusals are text of other users. No command may let this text act on
// the reader's terminal, or hide other text.
func TestWordsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const evil = "a\x1b]0;owned\a\u009b31m\u202eb\u200bc\u2028d"
	w.must("new", "-d", "--id", "e", "--originator", evil, "--label", "k="+evil, "--label", "title="+evil, "--",
		"/bin/sh", "-c", `printf '\033]2;\302\233x\342\200\256y\a'; exec sleep 1000`, evil)
	c, err := client.Dial(t.Context(), client.Options{Dir: w.Dir, Name: evil})
	testkit.Must(t, err)
	defer func() { _ = c.Close() }()
	att, err := c.Attach(t.Context(), "e", client.AttachOptions{Mode: protocol.ModeExclusive})
	testkit.Must(t, err)
	check := func(args ...string) string {
		t.Helper()
		r := w.proxy(args...)
		for i, r := range r.Out + r.Errout {
			if r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Errorf("proxy %s prints %+q at %d", strings.Join(args, " "), r, i)
				break
			}
		}
		return r.Out + r.Errout
	}
	for _, args := range [][]string{
		{"ls"}, {"ls", "--json"}, {"info", "e"}, {"info", "e", "--json"}, {"events", "--after", "0", "--follow=false"},
		{"events", "--after", "0", "--follow=false", "--json"}, {"status"}, {"away", "e"}, {"__complete", "attach", ""}, {"info", evil},
	} {
		check(args...)
	}
	if out := check("attach", "e", "--exclusive"); !strings.Contains(out, "already_attached") {
		t.Errorf("attach to an exclusively attached session prints %q", out)
	}
	testkit.Must(t, att.Detach())
	w.must("kill", "e")
	w.proxy("wait", "e", "--timeout", "10s") // it exits with the child's code
	for _, args := range [][]string{{"ls"}, {"why", "e"}, {"why", "e", "--json"}, {"info", "e"}, {"attach", "e"}, {"events", "--after", "0", "--follow=false"}} {
		check(args...)
	}
}
