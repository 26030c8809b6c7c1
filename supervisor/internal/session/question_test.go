//go:build linux || darwin

package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// A query of a program, and the answer of a terminal.
const (
	askKind = "\x1b[c"
	kindIs  = "\x1b[?1;2c"
)

// threeViewers attaches three viewers whose terminals answer queries. The first one decides.
func threeViewers(t *testing.T, s *Session) [3]*viewer {
	t.Helper()
	var viewers [3]*viewer
	for i := range viewers {
		viewers[i] = look(t, s, protocol.AttachSpec{Answers: true, Writer: fmt.Sprintf("v%d", i)})
	}
	return viewers
}

// saw returns the output that a viewer has received since the last call.
func (v *viewer) saw(t *testing.T) string {
	t.Helper()
	v.seen = nil
	if _, err := v.drain(); err != nil {
		t.Fatal(err)
	}
	return string(v.seen)
}

// Of three viewers only one receives each query whole, in all of its forms. The queries of the others are masked, so
// that no second answer comes.
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

// While no viewer is attached the session answers each query that it supports once, and does not answer the others.
func TestDetachedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true})
		v.a.Close()
		show(by(s), "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[?1;1;0S\x1b[1$w\x1b]1337;Capabilities\x07\x1b]21;foreground=?\x1b\\\u009f"+
			"\x1b[>4;1m\x1b[?4m\x1b[?5522$p\u009b5n")
		if got, want := typedBy(by(s)), "\x1b[>4;1m\x1b[?5522;0$y\x1b[0n"; got != want {
			t.Errorf("the session answered with %q, want %q", got, want)
		}
	})
}

// The queries of a session that is unattended are answered at once. If it is started again, its first queries wait for a
// viewer, as those of other sessions do.
func TestUnattended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		spec := bash("")
		spec.Unattended = true
		s := create(t, tb, spec)
		show(by(s), "\x1b[5n")
		if got := typedBy(by(s)); got != "\x1b[0n" {
			t.Errorf("the session answers %q at once", got)
		}
		if again := (protocol.RespawnSpec{}).Apply(spec); again.Unattended {
			t.Error("the session is unattended after it was started again")
		}
	})
}

// The session, and not the viewer's terminal, answers queries about left and right margins, about reports of the size
// and about the terminal's name. The terminal core has no such margins and reports the size itself, and programs
// conclude from the name which features a terminal has.
func TestViewerGrantsNoMargins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true, Writer: "xterm"})
		testkit.Must(t, v.a.Appear(protocol.Appearance{Version: "iTerm2 3.5.0"}))
		show(by(s), "\x1b[?69$p\x1b[>")
		show(by(s), "q\x1b[?2048$p\x1b[>0q\x1b[c")
		const version = "\x1bP>|holdfast iTerm2 3.5.0\x1b\\"
		if got, want := typedBy(by(s)), "\x1b[?69;0$y"+version+"\x1b[?2048;2$y"+version; got != want {
			t.Errorf("the session answers %q, want %q", got, want)
		}
		if got := v.saw(t); strings.Contains(got, "$p") || strings.Contains(got, "q") || !strings.HasSuffix(got, "\x1b[c") {
			t.Errorf("the viewer is asked %q, want DA1 alone", got)
		}
		for _, tt := range []struct{ name, typed, want string }{
			{"xterm", "\x1b[?64;1;2;6;9;15;16;17;18;21;22;28c", "\x1b[?64;1;2;6;9;15;16;17;18;22c"},
			{"within other input", "a\x1b[>0;390;0c\x1b[?21;28cb", "a\x1b[>0;390;0c\x1b[?cb"},
			{"a VT420 by DA2", "\x1b[>41;390;0c", "\x1b[>24;390;0c"},
			{"mintty by DA2", "\x1b[>77;30600;0c", "\x1b[>24;30600;0c"},
			{"other answers to DA2", "\x1b[>0;276;0c\x1b[>84;0;0c\x1b[>1;4000;29c", "\x1b[>0;276;0c\x1b[>84;0;0c\x1b[>1;4000;29c"},
			{"a terminal without margins", "\x1b[?1;2c", "\x1b[?1;2c"},
			{"another report with 21", "\x1b[?21u\x1b[21;1R", "\x1b[?21u\x1b[21;1R"},
			{"pasted", "\x1b[200~\x1b[?21c\x1b[201~\x1b[?1;21c", "\x1b[200~\x1b[?21c\x1b[201~\x1b[?1c"},
		} {
			testkit.Must(t, v.a.Type(v.typed, []byte(tt.typed)))
			v.typed += uint64(len(tt.typed))
			if got := typedBy(by(s)); got != tt.want {
				t.Errorf("%s: %q reaches the program as %q, want %q", tt.name, tt.typed, got, tt.want)
			}
		}
	})
}

// A program that has requested reports of the size (mode 2048) receives one report for each change. The session alone
// sends it, whether or not a viewer is attached.
func TestSizeIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true, Cols: 80, Rows: 24})
		v.saw(t)
		wantReport := func(what, want string) {
			t.Helper()
			if got := typedBy(by(s)); got != want {
				t.Errorf("%s: the program receives %q, want %q", what, got, want)
			}
		}
		show(by(s), "\x1b[?1004;2048h\x1b[?2048h")
		wantReport("at once", "\x1b[48;24;80;0;0t\x1b[48;24;80;0;0t")
		if got, want := v.saw(t), "\x1b[?1004;0000h\x1b[?2048\x18"; got != want {
			t.Errorf("the viewer receives %q, want %q", got, want)
		}
		testkit.Must(t, v.a.Resize(protocol.Size{Cols: 100, Rows: 30}))
		wantReport("a viewer's size", "\x1b[48;30;100;0;0t")
		testkit.Must(t, v.a.Resize(protocol.Size{Cols: 100, Rows: 30}))
		wantReport("the same size", "")
		testkit.Must(t, v.a.Appear(protocol.Appearance{CellWidth: 8, CellHeight: 16}))
		wantReport("pixels", "\x1b[48;30;100;480;800t")
		v.a.Detach()
		testkit.Must(t, s.Resize(protocol.Size{Cols: 50, Rows: 20}))
		wantReport("no viewer", "\x1b[48;20;50;320;400t")
		late := look(t, s, protocol.AttachSpec{Answers: true})
		if got := late.saw(t); strings.Contains(got, "2048") {
			t.Errorf("the snapshot has the viewer's terminal report, too: %q", got)
		}
		show(by(s), "\x1b[?2048l")
		testkit.Must(t, s.Resize(protocol.Size{Cols: 60, Rows: 20}))
		wantReport("off", "")
	})
}

// Another viewer decides after the viewers have received a query, or some of them, which the screen has not seen yet because
// it is behind with costly output. The program receives one answer nevertheless.
func TestResponderChangesAheadOfScreen(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first []int // the viewers that receive the query before the next one decides
	}{
		{"none", nil},
		{"the former responder", []int{0}},
		{"the next responder", []int{1}},
		{"all", []int{0, 1, 2}},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, by := fakeTable(t, Config{})
			turns := cap(tb.cfg.costlyTurns)
			for range turns { // loop has no turn, so only requests bring the screen up to date, up to feedCost
				<-tb.cfg.costlyTurns
			}
			spec := bash("")
			spec.Cols, spec.Rows = protocol.MaxCols, protocol.MaxRows
			s := create(t, tb, spec)
			viewers := threeViewers(t, s)
			var asked []*viewer
			receive := func(i int) {
				if strings.Contains(viewers[i].saw(t), askKind) {
					asked = append(asked, viewers[i])
				}
			}
			types := func(v *viewer, text string) {
				t.Helper()
				testkit.Must(t, v.a.Type(v.typed, []byte(text)))
				v.typed += uint64(len(text))
			}
			for i := range viewers {
				receive(i)
			}
			show(by(s), strings.Repeat(dearUnit, feedCost/dearCost+400)+askKind)
			for _, i := range tt.first {
				receive(i)
			}
			types(viewers[1], "x")
			if _, end, _ := s.ring.Bounds(); s.display.shownTo() == end {
				t.Fatal("the screen is not behind, so the test shows nothing")
			}
			for i := range viewers {
				receive(i)
			}
			for _, v := range asked {
				types(v, kindIs)
			}
			for range turns {
				tb.cfg.costlyTurns <- struct{}{}
			}
			synctest.Wait()
			for _, v := range viewers {
				v.a.Detach()
			}
			if got := typedBy(by(s)); got != "x"+kindIs {
				t.Errorf("%s: %d viewers have received the query, and the program %q", tt.name, len(asked), got)
			}
		})
	}
}
