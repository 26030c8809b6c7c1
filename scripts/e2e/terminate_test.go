package e2e

import (
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// demand: R3, M8
func TestTerminate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	w.spawn(c, "stubborn", role("stubborn"))
	v := w.attach(c, "stubborn", client.AttachOptions{})
	v.until("ready")
	grace := 1500 * time.Millisecond
	begun := time.Now()
	testkit.Must(t, c.Terminate(w.ctx(), "stubborn", client.End{Grace: &grace, Reason: "tired"}))
	if took := time.Since(begun); took > grace {
		t.Errorf("terminate returned after %v, want at once", took)
	}
	if err := c.Terminate(w.ctx(), "stubborn", client.End{Reason: "another"}); err != nil {
		t.Errorf("a second terminate: %v", err)
	}
	if err := c.Resize(w.ctx(), "stubborn", 100, 30); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("resize while the session ends: %v", err)
	}
	if err := c.Type(w.ctx(), "stubborn", []byte("x")); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("input while the session ends: %v", err)
	}
	v.until("got hangup") // the output is still read
	end := v.last()
	if end.Kind != client.Exited || end.Exit.Outcome != protocol.OutcomeHard || end.Exit.Signal != "SIGKILL" || end.Exit.Reason != "tired" {
		t.Errorf("the exit is %+v", end.Exit)
	}
	if took := time.Since(begun); took < grace {
		t.Errorf("the child was killed after %v, before the grace period has passed", took)
	}
	if err := c.Terminate(w.ctx(), "stubborn", client.End{}); code(err) != protocol.CodeSessionExited {
		t.Errorf("terminate of an exited session: %v", err)
	}

	// The whole process tree must end, including processes that left the process group.
	w.spawn(c, "tree", shell("sh -c 'trap \"\" HUP; sleep 1001 & setsid sleep 1002 & echo child; wait' & echo ready; wait"))
	v = w.attach(c, "tree", client.AttachOptions{})
	v.until("child")
	info, err := c.SessionInfo(w.ctx(), "tree")
	testkit.Must(t, err)
	tree := descendants(info.PID)
	if len(tree) < 3 {
		t.Fatalf("the child has the descendants %v, want at least 3", tree)
	}
	testkit.Must(t, c.Terminate(w.ctx(), "tree", client.End{}))
	v.last()
	for _, p := range tree {
		w.Gone(p)
	}
	// If the child ends at once, terminate must not wait for the grace period.
	w.spawn(c, "quick", echoing)
	v = w.attach(c, "quick", client.AttachOptions{})
	v.until("ready")
	begun = time.Now()
	hour := time.Hour
	testkit.Must(t, c.Terminate(w.ctx(), "quick", client.End{Grace: &hour}))
	if end := v.last(); end.Exit == nil || end.Exit.Outcome != protocol.OutcomeSoft || time.Since(begun) > limit {
		t.Errorf("the exit is %+v, after %v", end.Exit, time.Since(begun))
	}
}

func descendants(pid int) []process {
	var all []process
	for _, c := range children(pid) {
		all = append(append(all, lookup(c)), descendants(c)...)
	}
	return all
}
