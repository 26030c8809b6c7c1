//go:build linux || darwin

package session

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/protocol"
	"holdfast/supervisor/internal/session/event"
)

// since returns the events of these kinds that were published after the event with the number after.
func since(t testing.TB, tb *Table, after uint64, kinds ...protocol.EventKind) (got []event.Event) {
	t.Helper()
	if tb.Events().Seq() <= after {
		return nil
	}
	all, _, err := tb.Events().Next(context.Background(), after)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e event.Event) bool { return !slices.Contains(kinds, e.Kind) })
}

var commandKinds = []protocol.EventKind{protocol.EventCommandStarted, protocol.EventCommandFinished}

const (
	promptMark = "\x1b]133;A\a$ \x1b]133;B\a"
	startMark  = "\x1b]133;C\a"
)

func endMark(code int) string { return fmt.Sprintf("\x1b]133;D;%d\a", code) }

// The commands that a shell reports with marks are in the session's info. Each command causes two events, even if
// several come at once.
func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		f := by(s)
		show(f, "nothing")
		if c := info(t, s).Command; c != nil {
			t.Fatalf("without marks the command is %+v", c)
		}
		show(f, endMark(0)+promptMark) // as a shell begins: no command has run before
		if c := info(t, s).Command; c == nil || !reflect.DeepEqual(*c, protocol.CommandInfo{Prompt: true}) {
			t.Errorf("at the first prompt the command is %+v", c)
		}
		at := time.Now()
		show(f, "\x1b]7;file:///src\a\x1b]633;E;make -j\\x3b all\a"+startMark)
		place := &protocol.CommandOutput{Start: info(t, s).OutputOffset, From: protocol.LinePlace{Byte: 9}}
		show(f, "\x1b]133;C\aoutput")
		if c := info(t, s).Command; !reflect.DeepEqual(*c, protocol.CommandInfo{Line: "make -j; all", StartedAt: at, Cwd: "/src", Output: place}) {
			t.Errorf("while the command runs it is %+v", c)
		}
		time.Sleep(time.Minute)
		end := info(t, s).OutputOffset
		show(f, endMark(2)+promptMark)
		over := time.Now()
		place = &protocol.CommandOutput{Start: place.Start, End: end, From: place.From, To: protocol.LinePlace{Byte: 15}}
		if c := info(t, s).Command; !reflect.DeepEqual(*c, protocol.CommandInfo{
			Prompt: true, Line: "make -j; all", StartedAt: at, FinishedAt: over, ExitCode: new(2), Count: 1, Cwd: "/src", Output: place,
		}) {
			t.Errorf("after the command has ended it is %+v", c)
		}
		show(f, "\x1b]133;C;cmdline_url=a%20b\a"+endMark(0)+promptMark+startMark+"\x1b]133;D\a"+promptMark)
		var got []string
		for _, e := range since(t, tb, 0, commandKinds...) {
			c := e.Session.Command
			code := "-"
			if c.ExitCode != nil {
				code = fmt.Sprint(*c.ExitCode)
			}
			got = append(got, fmt.Sprintf("%s %q %s %d", e.Kind, c.Line, code, c.Count))
		}
		want := []string{
			`command_started "make -j; all" - 0`, `command_finished "make -j; all" 2 1`,
			`command_started "a b" 2 1`, `command_finished "a b" 0 2`,
			`command_started "" 0 2`, `command_finished "" - 3`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Commands in a flood of marks are all counted. Few of them are published, but the last one is.
func TestCommandFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, protocol.SpawnSpec{Argv: []string{"cat"}, Unattended: true})
		const n = 100_000
		show(by(s), strings.Repeat(promptMark+startMark+endMark(1), n))
		if c := info(t, s).Command; c.Count < n-1 || c.Count > n { // marks that a chunk's end splits may count as one
			t.Errorf("%d commands have ended, want %d", c.Count, n)
		}
		synctest.Wait()
		if published := since(t, tb, 0, commandKinds...); len(published) > 2*commandBurst {
			t.Errorf("%d events were published, want at most two a command", len(published))
		}
		before := tb.Events().Seq()
		time.Sleep(time.Second)
		synctest.Wait()
		published := since(t, tb, before, commandKinds...)
		if len(published) != 1 || published[0].Kind != protocol.EventCommandFinished || published[0].Session.Command.Count != info(t, s).Command.Count {
			t.Errorf("%d events were published later, want that of the last command", len(published))
		}
	})
}

// output_idle is published once, when the session has been silent for long enough.
func TestOutputIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb, by := fakeTable(t, Config{})
		s := create(t, tb, bash(""))
		published := func() int { synctest.Wait(); return len(since(t, tb, 0, protocol.EventOutputIdle)) }
		time.Sleep(time.Hour)
		if n := published(); n != 0 {
			t.Errorf("%d events for a session that has printed nothing", n)
		}
		for range 10 {
			show(by(s), "x")
			time.Sleep(outputIdle - time.Millisecond)
		}
		if n := published(); n != 0 {
			t.Errorf("%d events for a session that still prints", n)
		}
		time.Sleep(time.Millisecond)
		if n := published(); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
		time.Sleep(time.Hour)
		show(by(s), "y")
		time.Sleep(2 * outputIdle)
		if n := published(); n != 2 {
			t.Errorf("%d events, want 2", n)
		}
	})
}
