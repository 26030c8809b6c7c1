//go:build linux

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// takeOver starts a new gate that takes over from the one that runs, and returns when the old one has ended.
func (g *gatehouse) takeOver() {
	g.T.Helper()
	old := g.daemon
	g.daemon = g.Start(g.Command("proxy", "gate", "--handoff"))
	testkit.Eventually(g.T, 2*limit, func() bool {
		select {
		case <-g.daemon.Ended:
			g.T.Fatalf("the new gate exited with %d: %s", g.daemon.Code, g.daemon.Errout)
		case <-old.Ended:
			return true
		default:
		}
		return false
	}, "the old gate ends")
	if old.Code != 0 {
		g.T.Errorf("the old gate exited with %d: %s", old.Code, old.Errout)
	}
}

// A gate is replaced HOLDFAST_HANDOFFS times, while clients of two hosts type, read, attach and list. No byte
// may be lost or duplicated, no command may fail, and each echo must come soon.
// demand: S9
func TestGateHandoff(t *testing.T) {
	handoffs := number(t, "HOLDFAST_HANDOFFS", 3)
	f := newFleet(t, "red", "blue")
	visits := []*visit{}
	for _, name := range []string{"red", "blue"} {
		c := f.enter(name)
		f.spawn(c, "flow", flowing)
		visits = append(visits, &visit{name, f.followLines(c, "flow"), newScribe(f.echo(c, "echo"))})
	}
	f.spawn(f.enter("red"), "look", shell("stty -opost; while echo y; do sleep 0.05; done"))
	person := f.watch("red/look")
	testkit.Eventually(t, limit, func() bool { // a host that has just started its proxy tells that after its first session
		r, err := f.Try("proxy", "ls", "--all")
		return err == nil && strings.Count(r.Out, "running") == 5 && !strings.Contains(r.Out, "unknown")
	}, "the gate knows the five sessions")
	over, commands := make(chan struct{}), make(chan int, 1)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-over:
				commands <- n
				return
			default:
			}
			args := [][]string{{"info", "blue/echo"}, {"ls", "--all"}, {"new", "-d", "--on", "red", "--", "true"}}[n%3]
			if r, err := f.Try("proxy", args...); err != nil || r.Code != 0 || args[0] == "ls" && strings.Contains(r.Out, "unknown") {
				t.Errorf("%v during a handoff of the gate: %v, %v", args, r, err)
			}
		}
	}()
	var longest []time.Duration
	for range handoffs {
		end := beginSpan()
		f.takeOver()
		for _, v := range visits {
			longest = append(longest, v.continues(t, end))
		}
		person.mu.Lock()
		person.shown = nil
		person.mu.Unlock()
		person.shows(t, "y")
	}
	close(over)
	n := testkit.Within(t, limit, "the last command ends", commands)
	for _, v := range visits {
		v.leave()
	}
	if !person.Running() {
		t.Error("the attach command has ended")
	}
	slices.Sort(longest)
	t.Logf("%d handoffs, %d commands: the longest echo during a handoff took %v (median of %d), and %v at most", handoffs, n, longest[len(longest)/2], len(longest), longest[len(longest)-1])
}

// The npm client types through a gate that is replaced, and must lose no byte.
// demand: S9
func TestNPMClientGateHandoff(t *testing.T) {
	t.Parallel()
	f, n := typesAtGate(t)
	for range number(t, "HOLDFAST_HANDOFFS", 2) {
		n.ask("on", "on")
		f.takeOver()
	}
	n.ask("on", "on")
	t.Logf("%s", n.ask("end", "end"))
}
