package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// takesOver starts a successor of the proxy, which stops at a step, and returns it when it has stopped.
func (w *world) takesOver(step string) process {
	w.T.Helper()
	good := w.Env
	w.Env = append(good[:len(good):len(good)], "HOLDFAST_FAULT="+step+"=stop")
	next := w.Start(w.Command("proxy", "serve", "--take-over"))
	w.Env = good
	w.Stopped(next.Process)
	return next.Process
}

// If a successor stands still before its last message, and the old proxy serves again meanwhile, the successor must
// end when it continues. The old proxy must keep its sockets.
// demand: S9
func TestLateSuccessor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	w.dial(client.Options{})
	old := w.Only("proxy")
	next := w.takesOver("accepting")
	w.connect(client.Options{Name: "e2e"}) // it waits until the old proxy accepts again
	testkit.Must(t, syscall.Kill(next.PID, syscall.SIGCONT))
	w.Gone(next)
	if now := w.Only("proxy"); now != old {
		t.Errorf("process %d serves; the old proxy is process %d", now.PID, old.PID)
	}
	if c := w.connect(client.Options{Name: "e2e"}); c.ProxyPID() != old.PID {
		t.Errorf("process %d has the socket; the old proxy is process %d", c.ProxyPID(), old.PID)
	}
}

// If the old proxy is ended while a successor prepares, it must end the handoff first. Then the next command starts the
// only proxy. On a busy machine, the successor may have taken over before the signal arrives; it is the only proxy then.
// demand: S9
func TestOldEndsDuringHandoff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	w.dial(client.Options{})
	old := w.Only("proxy")
	next := w.takesOver("compared")
	old.Signal(syscall.SIGTERM)
	next.Signal(syscall.SIGCONT)
	w.Gone(old)
	w.Must("proxy", "ls")
	now := w.Only("proxy")
	if c := w.connect(client.Options{Name: "e2e"}); now == old || c.ProxyPID() != now.PID {
		t.Errorf("process %d has the socket, and process %d serves; the old proxy was process %d", c.ProxyPID(), now.PID, old.PID)
	}
}

// If a successor cannot report its progress, as old programs could not with a full disk, the command must find out
// that it serves, and must not kill it.
// demand: S9
func TestHandoffWithoutReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	old := w.Only("proxy")
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nunset HOLDFAST_HANDOFF_REPORT\nexec %s \"$@\"\n", w.Program("proxy"))
	testkit.WriteProgram(t, filepath.Join(dir, "proxy"), []byte(script))
	out := w.Must("proxy", "--handoff", "--timeout", "500ms", "--from-dir", dir)
	now := w.Only("proxy")
	if now == old || !strings.Contains(out, fmt.Sprintf("serves as pid %d", now.PID)) {
		t.Errorf("process %d serves, and the command has printed %q", now.PID, out)
	}
	v.ask("and goes on\n")
}
