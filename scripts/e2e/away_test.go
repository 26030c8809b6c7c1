package e2e

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// telling is a bash that tells of its prompts and commands, as a shell integration
// has it do.
func telling() protocol.SpawnSpec {
	const rc = `set -o history +H; PS1='\[\e]133;A\a\]ready> \[\e]133;B\a\]'
		PS0='\e]133;C\a'; PROMPT_COMMAND='printf "\e]133;D;%s\a" "$?"'; unset HISTFILE`
	return protocol.SpawnSpec{Argv: []string{"bash", "-c", `exec bash --noprofile --rcfile <(printf '%s\n' "$1") -i`, "bash", rc}}
}

// What a shell's commands came to is known to who comes back, though the supervisor
// and the proxy died meanwhile; and the viewers' environment, and who looks.
func TestAwayFromAShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", telling())
	info := func() *protocol.SessionInfo {
		t.Helper()
		i, err := c.SessionInfo(w.ctx(), "s")
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	awaits := func(what string, ok func(i *protocol.SessionInfo) bool) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool { return ok(info()) }, what)
	}
	events, err := c.Events(w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Close() })
	var mu sync.Mutex
	var told []protocol.EventKind
	go func() {
		for {
			e, err := events.Next()
			if err != nil {
				return
			}
			mu.Lock()
			told = append(told, e.Event)
			mu.Unlock()
		}
	}()
	v := w.attachScreen(c, "s", client.AttachOptions{Cols: 90, Rows: 30, Env: []string{"SSH_AUTH_SOCK=/agent"}, Typed: true})
	v.until("ready> ")
	awaits("a prompt", func(i *protocol.SessionInfo) bool { return i.Command != nil && i.Command.Prompt })
	if i := info(); len(i.Viewers) != 1 || i.Viewers[0].Client != "e2e" || i.Viewers[0].Window != (protocol.Size{Cols: 90, Rows: 30}) || i.Left != nil {
		t.Errorf("the viewers are %+v, left %+v", i.Viewers, i.Left)
	}
	since := info().Viewers[0].Since
	v.say("read -rs x; printf '\\a'; (exit 3)\n")
	awaits("it runs", func(i *protocol.SessionInfo) bool { return !i.Command.Prompt && i.Command.FinishedAt.IsZero() })

	wasTold := func(kind protocol.EventKind) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(told, kind)
		}, "it is told: "+string(kind))
	}

	// Neither death is somebody's leaving. What a supervisor could not tell any more is not told.
	wasTold(protocol.EventCommandStarted)
	w.KillSupervisor()
	awaits("it is known that it runs", func(i *protocol.SessionInfo) bool {
		return i.Command != nil && !i.Command.Prompt && i.Left == nil
	})
	w.Kill(w.Only("proxy"))
	awaits("the viewer is back", func(i *protocol.SessionInfo) bool {
		return len(i.Viewers) == 1 && i.Viewers[0].Since.Equal(since) && i.Left == nil
	})
	if a, err := c.Away(w.ctx(), "s"); err != nil || a.Left != nil || a.Ended != 0 {
		t.Errorf("before it leaves: %+v, %v", a, err)
	}
	v.say("password")
	var typed []string
	for !slices.Contains(typed, "********") {
		m, err := v.Receive(limit)
		if err != nil {
			t.Fatalf("told %q, then %v", typed, err)
		}
		if m.Kind == client.Typed {
			typed = append(typed, string(m.Data))
		}
	}
	if strings.Contains(strings.Join(typed, ""), "pass") {
		t.Errorf("told of what was typed: %q", typed)
	}
	if err := v.Detach(); err != nil {
		t.Fatal(err)
	}
	awaits("it has left", func(i *protocol.SessionInfo) bool { return i.Left != nil }) // the answer to a detach is the proxy's
	left := info()
	if left.Left.Offset != left.OutputOffset || left.Attachments != 0 {
		t.Errorf("left %+v, at %d", left.Left, left.OutputOffset)
	}
	if err := c.Type(w.ctx(), "s", []byte("\n")); err != nil {
		t.Fatal(err)
	}
	awaits("it has ended", func(i *protocol.SessionInfo) bool { return i.Command.Count == 1 && i.Command.Prompt })
	wasTold(protocol.EventCommandFinished)
	w.KillSupervisor()
	a, err := c.Away(w.ctx(), "s")
	if err != nil || a.Left == nil || !a.Left.At.Equal(left.Left.At) || !a.BackAt.IsZero() || a.Bells != 1 || a.Ended != 1 ||
		len(a.Commands) != 1 || a.Commands[0].ExitCode == nil || *a.Commands[0].ExitCode != 3 || a.Printed == 0 {
		t.Errorf("away: %+v, %v", a, err)
	}
	if env, err := c.Environment(w.ctx(), "s"); err != nil || !slices.Equal(env, []string{"SSH_AUTH_SOCK=/agent"}) {
		t.Errorf("the environment is %q, %v", env, err)
	}
	w.attachScreen(c, "s", client.AttachOptions{})
	if b, err := c.Away(w.ctx(), "s"); err != nil || b.BackAt.IsZero() || b.Printed != a.Printed || b.Ended != 1 {
		t.Errorf("back: %+v, %v", b, err)
	}

	wasTold(protocol.EventOutputIdle)
	mu.Lock()
	defer mu.Unlock()
	told = slices.DeleteFunc(told, func(k protocol.EventKind) bool {
		return k != protocol.EventCommandStarted && k != protocol.EventCommandFinished
	})
	if !slices.Equal(told, []protocol.EventKind{protocol.EventCommandStarted, protocol.EventCommandFinished}) {
		t.Errorf("of one command %v were told", told)
	}
}
