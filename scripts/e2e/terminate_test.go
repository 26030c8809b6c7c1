package e2e

import (
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
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
	if err := c.Terminate(w.ctx(), "stubborn", client.End{Grace: &grace, Reason: "tired"}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > grace {
		t.Errorf("it returns after %v: not when it is scheduled", took)
	}
	if err := c.Terminate(w.ctx(), "stubborn", client.End{Reason: "another"}); err != nil {
		t.Errorf("a second terminate: %v", err)
	}
	if err := c.Resize(w.ctx(), "stubborn", 100, 30); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("a resize while it ends: %v", err)
	}
	if err := c.Type(w.ctx(), "stubborn", []byte("x")); code(err) != protocol.CodeSessionNotFound {
		t.Errorf("input while it ends: %v", err)
	}
	v.until("got hangup") // its output is read all the same
	end := v.last()
	if end.Kind != client.Exited || end.Exit.Outcome != protocol.OutcomeHard || end.Exit.Signal != "SIGKILL" || end.Exit.Reason != "tired" {
		t.Errorf("it ends with %+v", end.Exit)
	}
	if took := time.Since(begun); took < grace {
		t.Errorf("it was killed after %v", took)
	}
	if err := c.Terminate(w.ctx(), "stubborn", client.End{}); code(err) != protocol.CodeSessionExited {
		t.Errorf("terminated after its end: %v", err)
	}

	// The whole tree goes with it, and whatever left its process group.
	w.spawn(c, "tree", shell("sh -c 'trap \"\" HUP; sleep 1001 & setsid sleep 1002 & echo child; wait' & echo ready; wait"))
	v = w.attach(c, "tree", client.AttachOptions{})
	v.until("child")
	info, err := c.SessionInfo(w.ctx(), "tree")
	if err != nil {
		t.Fatal(err)
	}
	tree := descendants(info.PID)
	if len(tree) < 3 {
		t.Fatalf("it has the descendants %v", tree)
	}
	if err := c.Terminate(w.ctx(), "tree", client.End{}); err != nil {
		t.Fatal(err)
	}
	v.last()
	for _, p := range tree {
		w.Gone(p)
	}
	// One that has gone costs no wait.
	w.spawn(c, "quick", echoing)
	v = w.attach(c, "quick", client.AttachOptions{})
	v.until("ready")
	begun = time.Now()
	hour := time.Hour
	if err := c.Terminate(w.ctx(), "quick", client.End{Grace: &hour}); err != nil {
		t.Fatal(err)
	}
	if end := v.last(); end.Exit == nil || end.Exit.Outcome != protocol.OutcomeSoft || time.Since(begun) > limit {
		t.Errorf("it ends with %+v, after %v", end.Exit, time.Since(begun))
	}
}

func descendants(pid int) []process {
	var all []process
	for _, c := range children(pid) {
		all = append(append(all, lookup(c)), descendants(c)...)
	}
	return all
}
