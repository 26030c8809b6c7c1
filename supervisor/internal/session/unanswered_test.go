//go:build linux

package session

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/ring"
)

// If the responder leaves before it has answered, the session answers the query. It does not answer a query that the
// responder has answered, or can still answer.
func TestResponderLeaves(t *testing.T) {
	const askColours, coloursAre = "\x1b]11;?\x1b\\", "\x1b]11;rgb:0000/0000/0000\x1b\\"
	for _, tt := range []struct {
		name  string
		asked string // by the program
		input string // of the responder
		leave func(t *testing.T, s *Session, v *viewer)
		want  string
	}{
		{"detaches", askKind, "", func(_ *testing.T, _ *Session, v *viewer) { v.a.Detach() }, kindIs},
		{"detaches late", askKind, "", func(_ *testing.T, _ *Session, v *viewer) { time.Sleep(time.Hour); v.a.Detach() }, kindIs},
		{"has typed", askCursor, "\x1b[A\x1b[I\x1b[<35;1;1Mls", func(_ *testing.T, _ *Session, v *viewer) { v.a.Detach() }, cursorIs},
		{"is replaced", askKind, "", func(t *testing.T, s *Session, _ *viewer) {
			look(t, s, protocol.AttachSpec{Answers: true, Writer: "other", Mode: protocol.ModeExclusive, Steal: true})
		}, kindIs},
		{"is lost", askKind, "", func(_ *testing.T, _ *Session, v *viewer) { v.a.Close(); time.Sleep(reconnectTime); synctest.Wait() }, kindIs},
		{"may return", askKind, "", func(_ *testing.T, _ *Session, v *viewer) { v.a.Close(); time.Sleep(reconnectTime / 2) }, ""},
		{"has returned", askKind, "", func(t *testing.T, s *Session, v *viewer) {
			v.a.Close()
			look(t, s, protocol.AttachSpec{Answers: true, Writer: "w", Resume: &protocol.Resume{Instance: s.Instance(), Offset: v.pos}})
			time.Sleep(time.Hour)
		}, ""},
		{"only decides no more", askKind, "", func(t *testing.T, s *Session, _ *viewer) {
			other := look(t, s, protocol.AttachSpec{Answers: true, Writer: "other"})
			testkit.Must(t, other.a.Type(0, []byte("\x1b[A")))
		}, ""},
		{"has answered", askKind, "\x1b[?64;1c", func(_ *testing.T, _ *Session, v *viewer) { v.a.Detach() }, ""},
		{"has answered in two pieces", askKind, "\x1b[?64", func(_ *testing.T, _ *Session, v *viewer) { v.a.Detach() }, ""},
		{"more queries", askColours + "\x1b[>q" + askKind, "", func(_ *testing.T, _ *Session, v *viewer) { v.a.Detach() }, coloursAre + kindIs},
		{"a query that some terminals ignore", askColours, "", func(_ *testing.T, _ *Session, v *viewer) { v.a.Detach() }, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, by := fakeTable(t, Config{})
			s := create(t, tb, bash(""))
			v := look(t, s, protocol.AttachSpec{Answers: true, Writer: "w"})
			testkit.Must(t, v.a.Appear(protocol.Appearance{Background: "#000000"}))
			show(by(s), tt.asked)
			if tt.input != "" {
				v.saw(t) // an answer comes after its query was received
				testkit.Must(t, v.a.Type(0, []byte(tt.input)))
			}
			typedBy(by(s)) // also the answer to XTVERSION, which the session always gives
			tt.leave(t, s, v)
			got := typedBy(by(s))
			if tt.name == "only decides no more" {
				got = got[len("\x1b[A"):]
			}
			if got != tt.want {
				t.Errorf("%s: the session answered with %q, want %q", tt.name, got, tt.want)
			}
		})
	}
}

// A viewer that has claimed the first queries of a session and leaves before it has answered them is like each other responder.
func TestClaimantLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), askKind)
		spec := fromStart(s)
		spec.Answers = true
		v := look(t, s, spec)
		if got := typedBy(by(s)); got != "" {
			t.Errorf("the session answered with %q, although a viewer answers", got)
		}
		v.a.Detach()
		if got := typedBy(by(s)); got != kindIs {
			t.Errorf("the session answered with %q, want %q", got, kindIs)
		}
	})
}

// A query that a responder has not answered before its supervisor died is answered if the responder leaves the next supervisor.
func TestResponderLeavesNextLife(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`stty -echo -icanon; echo READY; read -r; printf '\e[c'; read -rd c; echo ANSWERED; read -r`))
	spec := fromStart(s)
	spec.Answers, spec.Writer = true, "w"
	v := look(t, s, spec)
	v.until(t, "READY")
	testkit.Must(t, v.a.Type(0, []byte("\n")))
	v.until(t, askKind)
	_ = text(t, s) // waits until the screen has seen the query, and the session has saved that v must answer it
	l = l.restart(Heritage{})
	s = l.get(s.ID())
	spec.Resume.Offset = v.pos
	look(t, s, spec).a.Detach()
	look(t, s, fromStart(s)).until(t, "ANSWERED")
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
}

// A responder that skips output does not receive the queries in it, so the session answers them. It does not answer those that
// the responder has received.
func TestResponderSkipsQuery(t *testing.T) {
	flood := strings.Repeat("0123456789abcde\n", (ring.DefaultBytes+256<<10)/16)
	for _, tt := range []struct {
		name    string
		printed []string // the responder reads in between, but not after the last
		input   string   // of the responder before it reads again
		returns bool     // the responder reads again over another connection
		want    string
	}{
		{"skipped", []string{"", flood + askKind}, "", false, kindIs},
		{"two skipped", []string{"", askCursor + flood + askKind}, "", false, "\x1b[1;6R" + kindIs},
		{"received", []string{askKind, flood}, "", false, ""},
		{"received and skipped", []string{askCursor, flood + askKind}, "", false, kindIs},
		{"answered and skipped", []string{askCursor, flood + askKind}, cursorIs, false, cursorIs + kindIs},
		{"not skipped", []string{"", askKind}, "", false, ""},
		{"skipped while it was lost", []string{"", flood + askKind}, "", true, kindIs},
		{"received before it was lost", []string{askKind, flood}, "", true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb, by := fakeTable(t, Config{})
			s := create(t, tb, bash(""))
			v := look(t, s, protocol.AttachSpec{Answers: true, Writer: "w"})
			show(by(s), "begin")
			for _, text := range tt.printed {
				v.saw(t)
				show(by(s), text)
			}
			if tt.input != "" {
				testkit.Must(t, v.a.Type(0, []byte(tt.input)))
			}
			if got := typedBy(by(s)); got != tt.input {
				t.Errorf("%s: the session answered with %q before the responder had skipped the query", tt.name, got[len(tt.input):])
			}
			if tt.returns {
				v.a.Close()
				v = look(t, s, protocol.AttachSpec{Answers: true, Writer: "w", Resume: &protocol.Resume{Instance: s.Instance(), Offset: v.pos}})
			}
			v.saw(t)
			synctest.Wait()
			if got, want := typedBy(by(s)), strings.TrimPrefix(tt.want, tt.input); got != want {
				t.Errorf("%s: the session answered with %q, want %q", tt.name, got, want)
			}
		})
	}
}

// A responder may answer before the screen has seen the query. The session does not answer it again.
func TestResponderIsFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true, Writer: "w"})
		show(by(s), "begin")
		v.saw(t)
		s.do(func() { // loop writes nothing to the screen meanwhile
			show(by(s), askKind)
			v.saw(t)
			if _, err := s.acceptInput(v.a, "w", 0, []byte(kindIs)); err != nil {
				t.Error(err)
			}
		})
		v.a.Detach()
		if got := typedBy(by(s)); got != kindIs {
			t.Errorf("the program received %q, want %q", got, kindIs)
		}
	})
}

// The replies that are kept are bounded, in all and for each responder.
func TestUnansweredIsBounded(t *testing.T) {
	var u unanswered
	for i := range 2 * maxUnansweredBatches {
		if kept := u.add("a", uint64(i), []byte(kindIs), nil); kept != (i < maxUnansweredBatches) {
			t.Errorf("reply %d is kept: %v", i, kept)
		}
	}
	if u.add("b", 0, bytes.Repeat([]byte(kindIs), maxUnanswered/len(kindIs)+1), nil) {
		t.Error("a reply that is too long is kept")
	}
	for i := range maxUnansweredOwners {
		u.add(fmt.Sprint(i), 0, []byte(kindIs), nil)
	}
	if got := u.take("a", 0, math.MaxUint64); got != nil {
		t.Errorf("replies for the earliest of %d responders are kept: %q", maxUnansweredOwners+1, got)
	}
	if got := string(u.take("15", 0, math.MaxUint64)); got != kindIs {
		t.Errorf("%q is kept for the last responder, want %q", got, kindIs)
	}
}

// The earlier attachment of a responder needs a new snapshot while a later one takes its place. The later one receives the
// query and answers it, so the session does not, and it holds no snapshot for the earlier one.
func TestReplacedResponderSkipsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		v := look(t, s, protocol.AttachSpec{Answers: true, Writer: "w"})
		v.saw(t)
		show(by(s), askKind)
		v.a.requestRenewal(newSnapshot)
		s.do(func() { // loop is busy until both wait for it, the later attachment first
			go func() {
				later, _, err := s.Attach(t.Context(), protocol.AttachSpec{Answers: true, Writer: "w", Resume: &protocol.Resume{Instance: s.Instance(), Offset: v.pos}})
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(later.Close)
			}()
			synctest.Wait()
			go func() {
				if item, err := v.a.Next(t.Context(), v.buf); err != nil || item.Kind != ItemStolen {
					t.Errorf("the earlier attachment receives item %d, %v", item.Kind, err)
				}
			}()
			synctest.Wait()
		})
		synctest.Wait()
		v.a.Close()
		if got := typedBy(by(s)); got != "" {
			t.Errorf("the session answered with %q, although a viewer answers", got)
		}
		if n := len(s.held.all); n != 0 {
			t.Errorf("%d snapshots are held for attachments that have ended", n)
		}
	})
}
