//go:build linux || darwin

package session

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// A farScreen is a session with three viewers. Its screen is behind with costly output, which ends with a query, and does
// not reach the query until catchUp is called, whatever is requested.
type farScreen struct {
	*Session
	t       *testing.T
	tb      *Table
	by      *fakePTY
	viewers [3]*viewer
	asked   int // how often a viewer has received the query
}

// farScreenWith prints a query behind output of which each request brings feedCost to the screen.
func farScreenWith(t *testing.T, requests int) *farScreen {
	t.Helper()
	tb, by := fakeTable(t, Config{})
	for range cap(tb.cfg.costlyTurns) { // loop has no turn, so only requests bring the screen up to date, up to feedCost
		<-tb.cfg.costlyTurns
	}
	spec := bash("")
	spec.Cols, spec.Rows = protocol.MaxCols, protocol.MaxRows
	s := create(t, tb, spec)
	f := &farScreen{Session: s, t: t, tb: tb, by: by(s), viewers: threeViewers(t, s)}
	f.receive(0, 1, 2)
	text := strings.Repeat(dearUnit, requests*feedCost/dearCost+400) + askKind
	show(f.by, text)
	if _, end, _ := s.ring.Bounds(); end != uint64(len(text)) {
		t.Fatalf("the ring has %d of %d bytes, so the viewers do not receive the query", end, len(text))
	}
	return f
}

func (f *farScreen) types(v *viewer, text string) {
	f.t.Helper()
	testkit.Must(f.t, v.a.Type(v.typed, []byte(text)))
	v.typed += uint64(len(text))
}

// receive lets viewers receive the output, and returns those that have received the query.
func (f *farScreen) receive(viewers ...int) (asked []*viewer) {
	f.t.Helper()
	for _, i := range viewers {
		if strings.Contains(f.viewers[i].saw(f.t), askKind) {
			asked = append(asked, f.viewers[i])
			f.asked++
		}
	}
	return asked
}

// answer lets viewers receive the output, and answer the query.
func (f *farScreen) answer(viewers ...int) {
	f.t.Helper()
	for _, v := range f.receive(viewers...) {
		f.types(v, kindIs)
	}
}

// answerAll lets the viewers that are attached receive the output, and answer the query.
func (f *farScreen) answerAll() {
	f.t.Helper()
	for i, v := range f.viewers {
		isAttached := false
		f.do(func() { isAttached = f.Session.viewers.has(v.a) })
		if isAttached {
			f.answer(i)
		}
	}
}

// again lets a viewer attach again.
func (f *farScreen) again(i int, spec protocol.AttachSpec) {
	f.t.Helper()
	typed := f.viewers[i].typed
	spec.Answers, spec.Writer = true, f.viewers[i].a.Writer()
	f.viewers[i] = look(f.t, f.Session, spec)
	f.viewers[i].typed = typed
}

// renew makes a viewer begin again with a snapshot of the screen, which is behind what the viewer has received.
func (f *farScreen) renew(i int) {
	f.viewers[i].wants = true // the snapshot, although it has missed nothing
	f.viewers[i].a.requestRenewal(newSnapshot)
}

func (f *farScreen) resume(i int) *protocol.Resume {
	return &protocol.Resume{Instance: f.Instance(), Offset: f.viewers[i].pos}
}

func (f *farScreen) mustBeBehind() {
	f.t.Helper()
	if _, end, _ := f.ring.Bounds(); f.display.shownTo() == end {
		f.t.Fatal("the screen is not behind, so the test shows nothing")
	}
}

func (f *farScreen) catchUp() {
	for range cap(f.tb.cfg.costlyTurns) {
		f.tb.cfg.costlyTurns <- struct{}{}
	}
	synctest.Wait()
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
		for _, requests := range []int{1, 2} {
			synctest.Test(t, func(t *testing.T) {
				f := farScreenWith(t, requests)
				asked := f.receive(tt.first...)
				f.types(f.viewers[1], "x")
				f.mustBeBehind()
				for _, v := range append(asked, f.receive(0, 1, 2)...) {
					f.types(v, kindIs)
				}
				f.catchUp()
				for _, v := range f.viewers {
					v.a.Detach()
				}
				if got := typedBy(f.by); got != "x"+kindIs {
					t.Errorf("%s, %d requests: viewers have received the query %d times, and the program %q", tt.name, requests, f.asked, got)
				}
			})
		}
	}
}

// A viewer leaves, is lost, or begins again with a snapshot, after it has received a query that the screen has not seen yet. The
// program receives one answer, of the viewer if it can still give one.
func TestResponderLeavesAheadOfScreen(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(f *farScreen)
		want string // besides the answer
	}{
		{"leaves before its answer", func(f *farScreen) { f.receive(0); f.viewers[0].a.Detach() }, ""},
		{"leaves after its answer", func(f *farScreen) { f.answer(0); f.viewers[0].a.Detach() }, ""},
		{"all leave after the answer", func(f *farScreen) {
			f.answer(0)
			for _, v := range f.viewers {
				v.a.Detach()
			}
		}, ""},
		{"leaves after its answer, and another one decides", func(f *farScreen) {
			f.answer(0)
			f.types(f.viewers[1], "x")
			f.viewers[0].a.Detach()
		}, "x"},
		{"leaves before its answer, and another one decides", func(f *farScreen) {
			f.receive(0, 1, 2)
			f.types(f.viewers[1], "x")
			f.viewers[0].a.Detach()
		}, "x"},
		{"is lost, and answers when it is back", func(f *farScreen) {
			f.receive(0)
			f.viewers[0].a.Close()
			f.again(0, protocol.AttachSpec{Resume: f.resume(0)})
			f.types(f.viewers[0], kindIs)
		}, ""},
		{"is lost, and another one decides until it is back", func(f *farScreen) {
			f.receive(0)
			f.viewers[0].a.Close()
			f.types(f.viewers[1], "x")
			f.again(0, protocol.AttachSpec{Resume: f.resume(0)})
			f.types(f.viewers[0], kindIs)
		}, "x"},
		{"is lost, and does not come back", func(f *farScreen) {
			f.receive(0)
			f.viewers[0].a.Close()
			time.Sleep(reconnectTime)
		}, ""},
		{"attaches again without resume", func(f *farScreen) {
			f.answer(0)
			f.viewers[0].a.Close()
			f.again(0, protocol.AttachSpec{})
		}, ""},
		{"attaches again without resume, before its answer", func(f *farScreen) {
			f.receive(0)
			f.viewers[0].a.Close()
			f.again(0, protocol.AttachSpec{})
		}, ""},
		{"resumes with a snapshot", func(f *farScreen) {
			f.answer(0)
			f.again(0, protocol.AttachSpec{Resume: f.resume(0), Snapshot: true})
		}, ""},
		{"resumes with a snapshot, and then answers", func(f *farScreen) {
			f.receive(0)
			f.again(0, protocol.AttachSpec{Resume: f.resume(0), Snapshot: true})
			f.receive(0)
			f.types(f.viewers[0], kindIs)
		}, ""},
		{"needs another snapshot", func(f *farScreen) {
			f.answer(0)
			f.renew(0)
		}, ""},
		{"needs another snapshot before its answer", func(f *farScreen) {
			asked := f.receive(0)
			f.renew(0)
			for _, v := range append(asked, f.receive(0)...) {
				f.types(v, kindIs)
			}
		}, ""},
		{"leaves before the others receive the query, and another one decides then", func(f *farScreen) {
			f.viewers[0].a.Detach()
			f.receive(1, 2)
			f.types(f.viewers[1], "x")
		}, "x"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := farScreenWith(t, 6)
			tt.do(f)
			f.mustBeBehind()
			f.answerAll()
			f.catchUp()
			f.answerAll()
			got := typedBy(f.by)
			for _, v := range f.viewers {
				v.a.Detach()
			}
			if more := typedBy(f.by); strings.Replace(got, tt.want, "", 1) != kindIs || more != "" {
				t.Errorf("%s: viewers have received the query %d times, and the program %q, and %q at their end", tt.name, f.asked, got, more)
			}
		})
	}
}
