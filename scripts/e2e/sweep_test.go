package e2e

import (
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// The sweep must end an idle session. Its viewer must receive the reason and the last lines with the exit, and
// the session must stay listed with its exit record. A session that is used must live, and so must a session
// whose label sets a longer timeout or none.
// demand: M11, B7, B4, B8
func TestIdleSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_IDLE_TIMEOUT=2s")
	c := w.dial(client.Options{})
	kept := shell("exec sleep 1000")
	kept.Labels = map[string]string{protocol.LabelIdleTimeout: "0"}
	w.spawn(c, "kept", kept)
	own := shell("exec sleep 1000")
	own.Labels = map[string]string{protocol.LabelIdleTimeout: "1h"}
	w.spawn(c, "long", own)
	idle := shell("echo one; echo; echo two; exec sleep 1000")
	idle.Labels = map[string]string{protocol.LabelTitle: "a title"}
	w.spawn(c, "idle", idle)
	p := w.client(api.Hello{Protocol: protocol.Supported()})
	testkit.Must(t, p.SetDeadline(time.Now().Add(limit)))
	testkit.Must(t, p.send(api.Attach{Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: "idle"}}))
	used := w.echo(c, "used") // last, because it must be used within 2 s
	told := make(chan *api.PTYExited, 1)
	go func() {
		defer close(told)
		for {
			m, err := p.receive()
			if err != nil {
				t.Errorf("receive of the viewer: %v", err)
				return
			}
			if m, ok := m.(*api.PTYExited); ok {
				told <- m
				return
			}
		}
	}()
	var exited *api.PTYExited
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for exited == nil {
		select {
		case m, ok := <-told:
			if exited = m; !ok {
				t.FailNow()
			}
		case <-tick.C:
			used.ask("still here\n")
		}
	}
	if !exited.TimedOut || exited.Reason != protocol.ReasonIdleTimeout || exited.SessionTitle != "a title" ||
		len(exited.LastLines) != 2 || exited.LastLines[0] != "one" || exited.LastLines[1] != "two" {
		t.Errorf("the viewer received the exit %+v", exited)
	}
	info, err := c.SessionInfo(w.ctx(), "idle")
	if err != nil || info.State != protocol.StateExited || info.Exit == nil || !info.Exit.TimedOut {
		t.Errorf("the swept session is %+v, %v", info, err)
	}
	for _, id := range []protocol.SessionID{"used", "kept", "long"} {
		if info, err := c.SessionInfo(w.ctx(), id); err != nil || info.State != protocol.StateRunning {
			t.Errorf("%s is %s, %v", id, info.State, err)
		}
	}
	used.ask("and here\n")
	// An idle session that ends for another reason must not count as timed out.
	testkit.Must(t, c.Terminate(w.ctx(), "kept", client.End{}))
	if exit, err := c.Wait(w.ctx(), "kept", limit); err != nil || exit.TimedOut || exit.Reason != protocol.ReasonUserRequested {
		t.Errorf("the exit of a terminated session is %+v, %v", exit, err)
	}
}
