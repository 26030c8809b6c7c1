//go:build linux || darwin

package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/pty"
)

// An awaiting is a call of Await that runs in a goroutine.
type awaiting struct {
	done chan struct{}
	info protocol.AwaitedInfo
	err  error
}

func awaits(t *testing.T, s *Session, spec protocol.AwaitSpec) *awaiting {
	a := &awaiting{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.info, a.err = s.Await(t.Context(), spec)
	}()
	synctest.Wait()
	return a
}

// is lets time pass until the next search, and checks the result of the await: the line that matched, or "" if it
// must still wait.
func (a *awaiting) is(t *testing.T, why, line string) {
	t.Helper()
	time.Sleep(awaitEvery)
	synctest.Wait()
	switch {
	case !isClosed(a.done) && line != "":
		t.Errorf("%s: the await has not ended, want %q", why, line)
	case isClosed(a.done) && (a.err != nil || a.info.Line != line || line == ""):
		t.Errorf("%s: the await ended with %+v, %v, want %q", why, a.info, a.err, line)
	}
}

func marked(t *testing.T, s *Session) []byte {
	t.Helper()
	m, err := s.Mark()
	testkit.Must(t, err)
	return m.Mark
}

// Each text is printed before the mark or after it. An await with the mark must match only lines that changed after
// it. An await with the inclusive mark must match those that an await without a mark has matched.
func TestAwaitText(t *testing.T) {
	const clear = "\x1b[H\x1b[2J"
	lines := func(n int) string { return strings.ReplaceAll(numbers(n), "\n", "\r\n") }
	for _, tt := range []struct {
		name          string
		before, after string
		unmarked      bool
		pattern       string
		want          string
	}{
		{"shown", "done\r\n", "", true, "done", "done"},
		{"shown, and then above the screen", "done\r\n", lines(100), true, "done", "done"},
		{"shown before the mark", "done\r\n", "", false, "done", ""},
		{"printed since", "", "done\r\n", false, "done", "done"},
		{"the same again, on another line", "done\r\n", "done\r\n", false, "done", "done"},
		{"a line that continues", "a\r\n$ ", "done", false, "done", "$ done"},
		{"an unchanged line above a new one", "done\r\n", "x\r\n", false, "done", ""},
		{"with blanks at its end", "", "done    \r\n", false, "done$", "done"},
		{"wrapped", "", strings.Repeat("x", 78) + "done\r\n", false, "xdone$", strings.Repeat("x", 78) + "done"},
		{"above the screen at once", "", "done\r\n" + lines(100), false, "done", "done"},
		{"above the screen at once, unmarked", "", "done\r\n" + lines(100), true, "done", "done"},
		{"above the screen before", "done\r\n" + lines(100), "x", true, "done", ""},
		{"above the screen before the mark", "done\r\n" + lines(100), "x", false, "done", ""},
		{"moved up since the mark", "done\r\n", lines(100), false, "done", ""},
		{"more than is looked at at a time", "", lines(3 * 2000), false, "^4321$", "4321"},
		{"the first of several", "", "a1\r\na2\r\n", false, "a.", "a1"},
		{"cleared, and the same again", "$ ", clear + "$ ", false, `\$$`, "$"},
		{"reset, and the same again", "$ ", "\x1bc$ ", false, `\$$`, "$"},
		{"above the screen, and then cleared", "done\r\n", lines(100) + clear + "x", false, "done", ""},
		{"drawn over", "\x1b[5;5Ha", "\x1b[5;5Hb", false, "b", "    b"},
		{"on the alternate screen", "", "\x1b[?1049h\x1b[3;1Hdone", false, "done", "done"},
		{"on the alternate screen before", "\x1b[?1049h\x1b[3;1Hdone", "x", false, "^done$", ""},
		{"on another row of it", "\x1b[?1049h\x1b[3;1Hdone", "\x1b[5;1Hdone", false, "done", "done"},
		{"behind the alternate screen", "done\r\n\x1b[?1049h", "x", true, "done", ""},
		{"printed, then hidden by the alternate screen", "", "done\r\n\x1b[?1049h", false, "done", "done"},
		{"unchanged on the normal screen", "done\r\n\x1b[?1049h", "\x1b[?1049l", false, "done", ""},
		{"the alternate screen again", "\x1b[?1049hdone", "\x1b[?1049l\x1b[?1049hdone", false, "^done$", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, by := fakeTable(t, Config{})
				s := create(t, tb, bash(""))
				show(by(s), tt.before)
				spec := protocol.AwaitSpec{Text: tt.pattern}
				mark, err := s.Mark()
				testkit.Must(t, err)
				if !tt.unmarked {
					spec.Since = mark.Mark
				}
				sooner := awaits(t, s, spec)
				show(by(s), tt.after)
				sooner.is(t, "awaited before", tt.want)
				if tt.unmarked {
					spec.Since = mark.Inclusive
				}
				awaits(t, s, spec).is(t, "awaited after", tt.want)
			})
		})
	}
}

// An await that matches returns the groups of the expression and the offset.
func TestAwaitGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		a := awaits(t, s, protocol.AwaitSpec{Text: `port (\d+)(x?)`})
		show(by(s), "listens on port 80.\r\n")
		a.is(t, "groups", "listens on port 80.")
		if want := []string{"port 80", "80", ""}; !slices.Equal(a.info.Groups, want) || a.info.Offset != 21 || a.info.Instance != s.Instance() {
			t.Errorf("the await ended with %+v, want groups %q", a.info, want)
		}
	})
}

// A line that changes and then has its old text again matches, because it changed after the mark.
func TestAwaitChangedAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), "busy")
		a := awaits(t, s, protocol.AwaitSpec{Text: "busy", Since: marked(t, s)})
		show(by(s), "\rdone")
		a.is(t, "another", "")
		show(by(s), "\rbusy")
		a.is(t, "again", "busy")
	})
}

func TestAwaitIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		show(by(s), "x")
		time.Sleep(time.Hour)
		old := marked(t, s)
		begun := time.Now()
		took := func(since []byte, want time.Duration) {
			t.Helper()
			info, err := s.Await(t.Context(), protocol.AwaitSpec{IdleMS: 2000, Since: since})
			if got := time.Since(begun); err != nil || got < want || got > want+awaitEvery || info.Exit != nil {
				t.Errorf("idle after %v, %+v, %v, want %v", got, info, err, want)
			}
		}
		took(nil, 0)
		took(old, 2*time.Second)
		took(old, 2*time.Second)
		go func() {
			for range 5 {
				time.Sleep(time.Second)
				by(s).print([]byte("x"))
			}
		}()
		begun = time.Now()
		took(marked(t, s), 7*time.Second)
	})
}

func TestAwaitPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		prompt := func(since []byte) *awaiting { return awaits(t, s, protocol.AwaitSpec{Prompt: true, Since: since}) }
		first := prompt(nil)
		first.is(t, "none yet", "")
		show(by(s), "\x1b]133;A\x07$ \x1b]133;B\x07")
		time.Sleep(awaitEvery)
		<-first.done
		<-prompt(nil).done // the prompt is already shown
		next := prompt(marked(t, s))
		next.is(t, "the same prompt", "")
		show(by(s), "false\r\n\x1b]133;C\x07")
		running := prompt(nil)
		next.is(t, "a command runs", "")
		running.is(t, "a command runs", "")
		show(by(s), "\x1b]133;D;1\x07\x1b]133;A\x07$ ")
		for _, a := range []*awaiting{next, running} {
			time.Sleep(awaitEvery)
			<-a.done
			if c := a.info.Command; a.err != nil || c == nil || !c.Prompt || c.Count != 1 || c.ExitCode == nil || *c.ExitCode != 1 {
				t.Errorf("the await ended with %+v, %v: %+v; want a prompt after a command with exit code 1", a.info, a.err, c)
			}
		}
	})
}

// An await ends when the session ends, but the last output is searched first.
func TestAwaitEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		last := awaits(t, s, protocol.AwaitSpec{Text: "bye"})
		never := awaits(t, s, protocol.AwaitSpec{Text: "never"})
		idle := awaits(t, s, protocol.AwaitSpec{IdleMS: 60_000})
		prompt := awaits(t, s, protocol.AwaitSpec{Prompt: true})
		by(s).print([]byte("\x1b]133;A\x07bye\r\n" + strings.ReplaceAll(numbers(5000), "\n", "\r\n")))
		by(s).exit(pty.Status{Code: 3})
		<-s.Exited()
		last.is(t, "the last words", "bye")
		check := func(what string, a *awaiting) {
			t.Helper()
			<-a.done
			if a.err != nil || a.info.Exit == nil || a.info.Exit.ExitCode != 3 || a.info.Line != "" {
				t.Errorf("await of %s ended with %+v, %v, want the exit", what, a.info, a.err)
			}
		}
		check("a text that is not printed", never)
		check("silence", idle)
		check("silence, later", awaits(t, s, protocol.AwaitSpec{IdleMS: 1}))
		check("a text that is not printed, after the end", awaits(t, s, protocol.AwaitSpec{Text: "never"}))
		check("a prompt, after the end", awaits(t, s, protocol.AwaitSpec{Prompt: true}))
		<-prompt.done
		awaits(t, s, protocol.AwaitSpec{Text: "^5000$"}).is(t, "a text on the last screen", "5000")
	})
}

func TestAwaitRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, _ := fakeTable(t, Config{})
		s, other := create(t, tb, bash("")), create(t, tb, bash(""))
		m := marked(t, s)
		cut := func(n int) []byte { return m[:len(m)-n] }
		for i, tt := range []struct {
			spec protocol.AwaitSpec
			want protocol.Code
		}{
			{protocol.AwaitSpec{Text: "x{1000}{2}x{1000}{2}x{999}"}, protocol.CodeInvalidArgument},
			{protocol.AwaitSpec{Text: "x", Since: []byte("mark")}, protocol.CodeInvalidArgument},
			{protocol.AwaitSpec{Text: "x", Since: cut(1)}, protocol.CodeInvalidArgument},
			{protocol.AwaitSpec{Text: "x", Since: append(cut(4), 0, 0, 0, 0)}, protocol.CodeInvalidArgument},
			{protocol.AwaitSpec{IdleMS: 1, Since: append(bytes.Clone(m), 0)}, protocol.CodeInvalidArgument},
			{protocol.AwaitSpec{Prompt: true, Since: marked(t, other)}, protocol.CodeInstanceMismatch},
		} {
			_, err := s.Await(t.Context(), tt.spec)
			wantCode(t, fmt.Sprint(i), err, tt.want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var errs []chan error
		for range maxAwaits {
			done := make(chan error, 1)
			go func() { _, err := s.Await(ctx, protocol.AwaitSpec{Text: "never"}); done <- err }()
			errs = append(errs, done)
		}
		synctest.Wait()
		_, err := s.Await(t.Context(), protocol.AwaitSpec{Text: "x"})
		wantCode(t, "an await above the limit", err, protocol.CodeLimitExceeded)
		cancel()
		for _, done := range errs {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("a canceled await ended with %v", err)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), 0)
		defer stop()
		if _, err := s.Await(ctx, protocol.AwaitSpec{IdleMS: 60_000}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an await whose context is over ended with %v", err)
		}
	})
}

// FuzzMark checks that parseMark refuses arbitrary bytes, or returns a mark that has a screen.
func FuzzMark(f *testing.F) {
	tb := NewTable(Config{Start: func(spec pty.Spec) (PTY, error) { return newFake(spec), nil }})
	f.Cleanup(func() { shutdown(f, tb) })
	s := create(f, tb, bash(""))
	m, err := s.Mark()
	testkit.Must(f, err)
	f.Add(m.Mark)
	f.Add([]byte{markVersion})
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := s.parseMark(in)
		if err == nil && len(in) > 0 && got.screen == nil {
			t.Errorf("%x was accepted as %+v, which has no screen", in, got)
		}
	})
}

// A session that ends and is forgotten while an awaiter begins to check has ended for that awaiter.
func TestAwaitForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		w := &awaiter{s: s, spec: protocol.AwaitSpec{Prompt: true}, changed: make(chan struct{}, 1)}
		info, err := w.wait(t.Context(), func() (protocol.AwaitedInfo, bool, time.Duration, error) {
			if !s.hasExited() {
				by(s).exit(pty.Status{Code: 3})
				<-s.Exited()
				if err := tb.Forget(s.ID(), ""); err != nil {
					t.Error(err)
				}
			}
			return w.check()
		})
		if err != nil || info.Exit == nil || info.Exit.ExitCode != 3 {
			t.Errorf("the reply is %+v, %v", info, err)
		}
	})
}

// After a flood each line that the history still has is searched. The search runs in steps, so that it does not hold
// up the session for long.
func TestAwaitInFlood(t *testing.T) {
	s, v := ready(t, `echo READY; read x; seq 1 30000; echo found it; seq 1 20000; echo END; cat`)
	m := marked(t, s)
	testkit.Must(t, v.a.Type(0, []byte("\n")))
	info, err := s.Await(t.Context(), protocol.AwaitSpec{Text: "^END$", Since: m})
	if err != nil || info.Line != "END" {
		t.Fatalf("%+v, %v", info, err)
	}
	info, err = s.Await(t.Context(), protocol.AwaitSpec{Text: "^199[0-9]{2}$", Since: m})
	if err != nil || !strings.HasPrefix(info.Line, "199") {
		t.Fatalf("%+v, %v", info, err)
	}
}
