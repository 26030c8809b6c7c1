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

// markedBash returns a bash that prints the shell marks (OSC 133) of its prompts and commands, as the shell
// integration makes it.
func markedBash() protocol.SpawnSpec {
	const rc = `set -o history +H; PS1='\[\e]133;A\a\]ready> \[\e]133;B\a\]'
		PS0='\e]133;C\a'; PROMPT_COMMAND='printf "\e]133;D;%s\a" "$?"'; unset HISTFILE`
	return protocol.SpawnSpec{Argv: []string{"bash", "-c", `exec bash --noprofile --rcfile <(printf '%s\n' "$1") -i`, "bash", rc}}
}

// A client that comes back is told the results of the commands that ended while it was away, the environment
// of the viewers, and the viewers themselves, even if supervisor and proxy were killed meanwhile. Each
// command is announced exactly once.
func TestAwayFromAShell(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "s", markedBash())
	info := func() *protocol.SessionInfo {
		t.Helper()
		i, err := c.SessionInfo(w.ctx(), "s")
		testkit.Must(t, err)
		return i
	}
	awaits := func(what string, ok func(i *protocol.SessionInfo) bool) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool { return ok(info()) }, what)
	}
	events, err := c.Events(w.ctx())
	testkit.Must(t, err)
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
	awaits("the shell shows a prompt", func(i *protocol.SessionInfo) bool { return i.Command != nil && i.Command.Prompt })
	if i := info(); len(i.Viewers) != 1 || i.Viewers[0].Client != "e2e" || i.Viewers[0].Window != (protocol.Size{Cols: 90, Rows: 30}) || i.Left != nil {
		t.Errorf("viewers %+v, left %+v; want one viewer, e2e, with a window of 90x30", i.Viewers, i.Left)
	}
	since := info().Viewers[0].Since
	v.say("read -rs x; printf '\\a'; (exit 3)\n")
	awaits("the command runs", func(i *protocol.SessionInfo) bool { return !i.Command.Prompt && i.Command.FinishedAt.IsZero() })

	wasTold := func(kind protocol.EventKind) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Contains(told, kind)
		}, "event received: "+string(kind))
	}

	// Neither death counts as the departure of a viewer. The new supervisor does not repeat the events of its
	// predecessor.
	wasTold(protocol.EventCommandStarted)
	w.KillSupervisor()
	awaits("the new supervisor knows that the command runs", func(i *protocol.SessionInfo) bool {
		return i.Command != nil && !i.Command.Prompt && i.Left == nil
	})
	w.Kill(w.Only("proxy"))
	awaits("the viewer is attached again, with the time of its first attach", func(i *protocol.SessionInfo) bool {
		return len(i.Viewers) == 1 && i.Viewers[0].Since.Equal(since) && i.Left == nil
	})
	if a, err := c.Away(w.ctx(), "s"); err != nil || a.Left != nil || a.Ended != 0 {
		t.Errorf("away before the viewer has left: %+v, %v; want nothing", a, err)
	}
	v.say("password")
	var typed []string
	for !slices.Contains(typed, "********") {
		m, err := v.Receive(limit)
		if err != nil {
			t.Fatalf("after the input %q: %v", typed, err)
		}
		if m.Kind == client.Typed {
			typed = append(typed, string(m.Data))
		}
	}
	if strings.Contains(strings.Join(typed, ""), "pass") {
		t.Errorf("the password was echoed to the viewer: %q", typed)
	}
	testkit.Must(t, v.Detach())
	awaits("the viewer has left", func(i *protocol.SessionInfo) bool { return i.Left != nil }) // the proxy answers a detach before the supervisor has seen it
	left := info()
	if left.Left.Offset != left.OutputOffset || left.Attachments != 0 {
		t.Errorf("left %+v while the output ends at %d", left.Left, left.OutputOffset)
	}
	testkit.Must(t, c.Type(w.ctx(), "s", []byte("\n")))
	awaits("the command has ended", func(i *protocol.SessionInfo) bool { return i.Command.Count == 1 && i.Command.Prompt })
	wasTold(protocol.EventCommandFinished)
	w.KillSupervisor()
	a, err := c.Away(w.ctx(), "s")
	if err != nil || a.Left == nil || !a.Left.At.Equal(left.Left.At) || !a.BackAt.IsZero() || a.Bells != 1 || a.Ended != 1 ||
		len(a.Commands) != 1 || a.Commands[0].ExitCode == nil || *a.Commands[0].ExitCode != 3 || a.Printed == 0 {
		t.Errorf("away %+v, %v; want one bell and one command with exit code 3", a, err)
	}
	if env, err := c.Environment(w.ctx(), "s"); err != nil || !slices.Equal(env, []string{"SSH_AUTH_SOCK=/agent"}) {
		t.Errorf("the environment of the viewers is %q, %v", env, err)
	}
	w.attachScreen(c, "s", client.AttachOptions{})
	if b, err := c.Away(w.ctx(), "s"); err != nil || b.BackAt.IsZero() || b.Printed != a.Printed || b.Ended != 1 {
		t.Errorf("away after the attach: %+v, %v", b, err)
	}

	wasTold(protocol.EventOutputIdle)
	mu.Lock()
	defer mu.Unlock()
	told = slices.DeleteFunc(told, func(k protocol.EventKind) bool {
		return k != protocol.EventCommandStarted && k != protocol.EventCommandFinished
	})
	if !slices.Equal(told, []protocol.EventKind{protocol.EventCommandStarted, protocol.EventCommandFinished}) {
		t.Errorf("events of one command: %v, want one start and one finish", told)
	}
}
