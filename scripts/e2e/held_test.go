//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/client"
	"holdfast/shared/link"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// TestHeld kills supervisors repeatedly. The keeper must not start another one and must hold all files. All commands
// must report this and how to continue, and that way must work.
func TestHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_CRASH_LIMIT=2", "HOLDFAST_CRASH_PAUSE=1ms")
	w.Must("proxy", "new", "-d", "--id", "s", "--", "cat")
	shell := lookup(w.info("s").PID)
	keeper := w.Only("keeper")
	if out := w.Must("proxy", "status"); !strings.Contains(out, fmt.Sprintf("keeper      pid %-8d holds 1 session; supervisor started once\n", keeper.PID)) {
		t.Errorf("status: %s", out)
	}
	w.finds("keeper", "ok", fmt.Sprintf("process %d holds all sessions", keeper.PID), "", 0)

	keeper.Signal(syscall.SIGSTOP)
	w.finds("keeper", "error", "was stopped by a signal", fmt.Sprintf("kill -CONT %d", keeper.PID), 2)
	keeper.Signal(syscall.SIGCONT)

	w.isRenewed()
	w.loop()
	w.isPresent()
	hup := fmt.Sprintf("kill -HUP %d", keeper.PID)
	for _, command := range []string{"ls", "status"} {
		if r := w.Run("proxy", command); !strings.Contains(r.Out+r.Errout, hup) {
			t.Errorf("proxy %s: %v", command, r)
		}
	}
	for _, args := range [][]string{{"--upgrade", "--dry-run"}, {"stop"}} {
		if r := w.Run("supervisor", args...); r.Code != 69 || !strings.Contains(r.Errout, hup) {
			t.Errorf("supervisor %v: %v", args, r)
		}
	}
	w.finds("supervisor", "error", "2 supervisors died within a minute", hup, 2)
	if logs := w.Logs(); !strings.Contains(logs, hup) {
		t.Error("the log does not say how to continue")
	}

	keeper.Signal(syscall.SIGHUP)
	w.serves()
	w.finds("keeper", "note", "started 3 times, and the one before ended: SIGKILL", "supervisor.log", 0)
	w.loop()
	if out := w.Must("supervisor", "--upgrade"); !strings.Contains(out, "will start") || !strings.Contains(out, "with 1 session") {
		t.Errorf("upgrade after a crash loop: %s", out)
	}
	w.Must("proxy", "send", "s", "--enter", "still here")
	testkit.Eventually(t, limit, func() bool { return strings.Contains(w.Must("proxy", "screen", "s"), "still here\nstill here") }, "cat echoes the input")
	if now := lookup(w.info("s").PID); now != shell || w.Only("keeper") != keeper {
		t.Errorf("the session's child was %v; now it is %v", shell, now)
	}
	w.KillBoth() // a supervisor that outlives its keeper for a moment would answer
	w.serves()
	w.loop()
	w.isPresent()
}

// isRenewed checks that a proxy renews the files of the keeper. While the keeper starts no supervisor, no other process does.
func (w *world) isRenewed() {
	w.T.Helper()
	old := time.Now().Add(-72 * time.Hour)
	testkit.Must(w.T, os.Chtimes(w.Path("keeper.lock"), old, old))
	w.Must("proxy", "stop")
	w.Must("proxy", "start")
	testkit.Eventually(w.T, limit, func() bool {
		info, err := os.Stat(w.Path("keeper.lock"))
		return err == nil && info.ModTime().After(old.Add(time.Hour))
	}, "the proxy renews the files of the keeper")
}

// isPresent checks that another supervisor with the same state directory sees that the sessions of this one are not lost.
func (w *world) isPresent() {
	w.T.Helper()
	locks, err := filepath.Glob(w.Path("supervisors/*.lock"))
	if err != nil || len(locks) != 1 {
		w.T.Fatalf("the presences are %v, %v", locks, err)
	}
	if held, err := socket.Locked(strings.TrimSuffix(locks[0], ".lock")); !held {
		w.T.Errorf("no process holds the presence: %v", err)
	}
}

// If the secret cannot be read any more, a supervisor that takes over sessions must serve, refuse everyone, and admit
// the proxies again when the secret can be read.
// demand: S11
func TestUnreadableSecret(t *testing.T) {
	t.Parallel()
	const secret = "0123456789abcdef0123456789abcdef"
	w := newWorld(t, "HOLDFAST_CRASH_PAUSE=1ms")
	path := filepath.Join(testkit.Dir(t), "secret")
	testkit.Must(t, os.WriteFile(path, []byte(secret), 0o600))
	w.Env = append(w.Env, "HOLDFAST_SECRET_FILE="+path)
	w.Must("proxy", "start")
	w.Must("proxy", "new", "-d", "--id", "s", "--", "cat")
	child := w.info("s").PID
	testkit.Must(t, os.Chmod(path, 0o644))
	w.KillSupervisor()
	for _, given := range []string{"", secret} {
		nc, _, err := socket.Dial(w.ctx(), w.Path("supervisor.sock"))
		testkit.Must(t, err)
		hello := wire.Hello{Protocol: protocol.Supported(), Version: "v1", Name: "test", Secret: given}
		if _, _, _, err := link.Dial(nc, hello, zerolog.Nop()); code(err) != protocol.CodeUnauthorized || !strings.Contains(err.Error(), path) {
			t.Errorf("a proxy with the secret %q: %v", given, err)
		}
	}
	if w.lines("supervisor.log", "secret not read", path) != 1 || w.lines("supervisor.log", "supervisor serves") != 2 {
		t.Errorf("the log: %s", w.Logs())
	}
	testkit.Must(t, os.Chmod(path, 0o600))
	w.serves()
	if now := w.info("s").PID; now != child {
		t.Errorf("the session's child was %d; now it is %d", child, now)
	}

	// Without sessions, nothing is lost if the supervisor does not start.
	testkit.Must(t, os.Chmod(path, 0o644))
	other := newWorld(t, "HOLDFAST_SECRET_FILE="+path)
	if r := other.Run("supervisor", "--background"); r.Code == 0 || other.lines("supervisor.log", "supervisor cannot serve", path) != 1 {
		t.Errorf("a first supervisor: %v, %s", r, other.Logs())
	}
}

// If the settings are a pipe, a supervisor that takes over sessions must not wait for its writer, and must use those of
// the last start.
func TestSettingsInPipe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	testkit.Must(t, os.WriteFile(w.Path("holdfast.json"), []byte(`{"scrollback_lines": 77}`), 0o600))
	w.Must("proxy", "new", "-d", "--id", "s", "--", "cat")
	child := w.info("s").PID
	testkit.Must(t, errors.Join(os.Remove(w.Path("holdfast.json")), syscall.Mkfifo(w.Path("holdfast.json"), 0o600)))
	w.KillSupervisor()
	if r := w.Run("proxy", "ls"); r.Code == 0 || !strings.Contains(r.Errout, "not a regular file") {
		t.Errorf("ls: %v", r)
	}
	c := w.connect(client.Options{})
	if s := w.spawn(c, "next", shell("exec sleep 1000")); s.Session.ScrollbackLines != 77 {
		t.Errorf("a session has %d lines of history, want 77", s.Session.ScrollbackLines)
	}
	testkit.Must(t, os.Remove(w.Path("holdfast.json")))
	if now := w.info("s").PID; now != child || w.lines("supervisor.log", "settings cannot be used", "regular file") != 1 {
		t.Errorf("the session's child was %d; now it is %d; the log: %s", child, now, w.Logs())
	}
}

// A keeper that receives SIGTERM must end, even while its supervisor is about to serve.
func TestToldToEndAtTheStart(t *testing.T) {
	t.Parallel()
	for range 30 {
		w := newWorld(t)
		d := w.Start(w.Command("supervisor"))
		testkit.Eventually(t, limit, func() bool { _, err := os.Lstat(w.Path("supervisor.sock")); return err == nil }, "the socket exists")
		d.Signal(syscall.SIGTERM)
		d.Wait(t)
		// If the keeper holds no vault entry yet, it ends the supervisor at once.
		if log := d.Errout.String(); strings.Count(log, "vault entries are held") > 1 {
			t.Fatalf("a keeper that was ready did not end in order:\n%s", log)
		}
	}
}

// loop kills two supervisors, and waits until the keeper starts no more.
func (w *world) loop() {
	w.T.Helper()
	w.Kill(w.Only("supervisor"))
	w.serves()
	w.Kill(w.Only("supervisor"))
	testkit.Eventually(w.T, limit, func() bool { return strings.Contains(w.Run("proxy", "doctor").Out, "only one is started each minute") }, "the keeper starts no supervisor")
}

// serves waits until a supervisor answers.
func (w *world) serves() {
	w.T.Helper()
	testkit.Eventually(w.T, limit, func() bool {
		var s client.Status
		r := w.Run("proxy", "status", "--json")
		return r.Code == 0 && json.Unmarshal([]byte(r.Out), &s) == nil && s.Supervisor != nil
	}, "a supervisor serves")
}

// info returns the information about a session that the command line prints.
func (w *world) info(id string) (s protocol.SessionInfo) {
	w.T.Helper()
	testkit.Must(w.T, json.Unmarshal([]byte(w.Must("proxy", "info", id, "--json")), &s))
	return s
}
