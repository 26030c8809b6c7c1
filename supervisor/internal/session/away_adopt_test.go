//go:build linux

package session

import (
	"slices"
	"testing"

	"holdfast/protocol"
	"holdfast/shared/testkit"
)

// The next supervisor knows the running command, the viewers and the summary of an absence. It publishes no event
// again that was published before, and publishes those that were not.
func TestAwayInNextLife(t *testing.T) {
	l := newLife(t, Config{})
	s := create(t, l.Table, bash(`mark() { printf '\e]133;%s\a' "$1"; }
		mark A; mark 'C;cmdline_url=make'; printf '\a\e]9;half\aREADY'; read -r
		mark 'D;2'; mark A; echo THEN; read -r
		mark C; printf '\a'; mark 'D;0'; echo LAST; read -r`))
	v := look(t, s, protocol.AttachSpec{Writer: "w", Client: "me", Env: []string{"A=1"}})
	v.until(t, "READY")
	await(t, l.Events(), s.ID(), protocol.EventCommandStarted)
	await(t, l.Events(), s.ID(), protocol.EventNotification) // the last event, which may come later
	was := info(t, s)
	if was.Command == nil || was.Command.Line != "make" {
		t.Fatalf("the command is %+v, want make", was.Command)
	}
	before := awayOf(t, s)
	published := l.Events().Seq()

	l = l.restart(Heritage{State: State{Seq: published}})
	s = l.get(s.ID())
	now := info(t, s)
	if c := now.Command; c == nil || c.Line != "make" || !c.StartedAt.Equal(was.Command.StartedAt) || now.Left != nil {
		t.Errorf("the command was %+v, and is %+v; left %+v", was.Command, c, now.Left)
	}
	if env, err := s.Environment(); err != nil || !slices.Equal(env, []string{"A=1"}) {
		t.Errorf("the environment is %q, %v", env, err)
	}
	text(t, s) // restores the screen
	if events := since(t, l.Table, published, append(commandKinds, protocol.EventBell, protocol.EventNotification)...); len(events) > 0 {
		t.Errorf("events were published again: %+v", events)
	}
	w, err := attach(s, protocol.AttachSpec{Writer: "w", Client: "me"}, nil)
	testkit.Must(t, err)
	if got := info(t, s).Viewers; len(got) != 1 || !got[0].Since.Equal(was.Viewers[0].Since) {
		t.Errorf("the viewers are %+v, they were %+v", got, was.Viewers)
	}
	if got := awayOf(t, s); got.Left != nil || got.Bells != before.Bells || got.Printed != before.Printed || !got.BackAt.Equal(before.BackAt) {
		t.Errorf("a viewer that resumes must not count as away: %+v", got)
	}
	w.a.Detach()
	if _, err := s.Type("", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	await(t, l.Events(), s.ID(), protocol.EventCommandFinished)
	got := awayOf(t, s)
	if got.Left == nil || got.Ended != 1 || len(got.Commands) != 1 || got.Commands[0].Line != "make" || *got.Commands[0].ExitCode != 2 {
		t.Errorf("away: %+v", got)
	}

	// A second supervisor is replaced while no viewer is attached. The absence goes on.
	published = l.Events().Seq()
	l = l.restart(Heritage{State: State{Seq: published}})
	s = l.get(s.ID())
	again := awayOf(t, s)
	if !again.Left.At.Equal(got.Left.At) || again.Left.Offset != got.Left.Offset || again.Left.Line != got.Left.Line || again.Ended != 1 || again.Bells != 0 {
		t.Errorf("away was %+v, and is %+v", got, again)
	}
	if _, err := s.Type("", 0, []byte("\n")); err != nil {
		t.Fatal(err)
	}
	await(t, l.Events(), s.ID(), protocol.EventCommandFinished)
	if got := awayOf(t, s); got.Ended != 2 || got.Bells != 1 || info(t, s).Command.Count != 2 {
		t.Errorf("away: %+v", got)
	}
	var log commandLog
	if err := s.ask(answerTime, func() { log = slices.Clone(s.saved.Log) }); err != nil || len(log) != 2 {
		t.Fatalf("%d commands are in the log, want that of the last life and that of this one; %v", len(log), err)
	}
	if a, b := log[0].Output, log[1].Output; a.Start != was.Command.Output.Start || a.End <= a.Start || b.Start <= a.End || b.End <= b.Start {
		t.Errorf("the outputs are at %+v and %+v, the first began at %+v", a, b, was.Command.Output)
	}
	if events := since(t, l.Table, published, commandKinds...); len(events) != 2 {
		t.Errorf("%d events of one command", len(events))
	}
	testkit.Must(t, s.Terminate(End{}))
	ended(t, s)
}
