//go:build linux || darwin

package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
)

// threeViewers attaches three viewers whose terminals answer. The first one
// decides.
func threeViewers(t *testing.T, s *Session) [3]*viewer {
	t.Helper()
	var viewers [3]*viewer
	for i := range viewers {
		viewers[i] = look(t, s, protocol.AttachSpec{Answers: true, Writer: fmt.Sprintf("v%d", i)})
	}
	return viewers
}

// saw returns what a viewer was shown since.
func (v *viewer) saw(t *testing.T) string {
	t.Helper()
	v.seen = nil
	if _, err := v.drain(); err != nil {
		t.Fatal(err)
	}
	return string(v.seen)
}

// Of three viewers one alone sees each question, in all of its forms, and none
// sees it whole whose answer would be the second one.
func TestThreeViewersOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		viewers := threeViewers(t, s)
		for _, question := range []string{
			"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\", "\x1b_Gi=1,a=T,f=24,s=1,v=1;AAAA\x1b\\", "\x1b[?1;1;0S",
			"\x1b[1;1;1;1;2;2*y", "\x1b[1$w", "\x1b[1$u", "\x1b[?4m", "\x1b]1337;ReportCellSize\x07", "\x1b]1337;Capabilities\x07",
			"\x1b]21;foreground=?\x1b\\", "\x1b]22;?__current__\x1b\\", "\x1b]99;i=1:p=?;\x1b\\", "\x1b[?5522$p", "\u009b6n", "\u009d11;?\u009c",
		} {
			show(by(s), question)
			whole := 0
			for _, v := range viewers {
				whole += strings.Count(v.saw(t), question)
			}
			if whole != 1 {
				t.Errorf("%d viewers see %q, want 1", whole, question)
			}
		}
		if got := typedBy(by(s)); got != "" {
			t.Errorf("the session answers %q as well", got)
		}
	})
}

// Nothing answers in place of a terminal what the session cannot do; what it can
// tell it tells once.
func TestDetachedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true})
		v.a.Close()
		show(by(s), "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[?1;1;0S\x1b[1$w\x1b]1337;Capabilities\x07\x1b]21;foreground=?\x1b\\\u009f"+
			"\x1b[>4;1m\x1b[?4m\x1b[?5522$p\u009b5n")
		if got, want := typedBy(by(s)), "\x1b[>4;1m\x1b[?5522;0$y\x1b[0n"; got != want {
			t.Errorf("answered with %q, want %q", got, want)
		}
	})
}
