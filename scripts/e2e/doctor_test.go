//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// A diagnosis is the result of one check of doctor.
type diagnosis struct{ Check, Severity, Finding, Fix string }

// doctor returns the results of one check, and the exit code.
func (w *world) doctor(check string) (found []diagnosis, code int) {
	w.T.Helper()
	r := w.Run("proxy", "doctor", "--json")
	var all []diagnosis
	if err := json.Unmarshal([]byte(r.Out), &all); err != nil || r.Errout != "" {
		w.T.Fatalf("doctor: %v, %v", err, r)
	}
	for _, d := range all {
		if d.Check == check {
			found = append(found, d)
		}
	}
	return found, r.Code
}

// finds fails the test unless doctor has exactly one result for a check, with the severity, texts and exit
// code that are given.
func (w *world) finds(check, severity, finding, fix string, code int) {
	w.T.Helper()
	found, got := w.doctor(check)
	if len(found) != 1 || found[0].Severity != severity || !strings.Contains(found[0].Finding, finding) || !strings.Contains(found[0].Fix, fix) || got != code {
		w.T.Errorf("%s: exit %d, %+v, want exit %d, %s, %q, %q", check, got, found, code, severity, finding, fix)
	}
}

// names returns the names of the files in the state directory.
func (w *world) names() (names []string) {
	w.T.Helper()
	entries, err := os.ReadDir(w.Dir)
	testkit.Must(w.T, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// doctor must find the defects of real programs, and must not start or change anything.
func TestDoctor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.names()
	w.finds("supervisor", "note", "none runs", "", 0)
	w.finds("orphans", "ok", "none", "", 0)
	if all, now := w.Running(""), w.names(); len(all) > 0 || !slices.Equal(now, before) {
		t.Errorf("doctor has started %v, or has changed the files %v to %v", all, before, now)
	}

	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	held, proxy := w.Only("supervisor"), w.Only("proxy")
	if out := w.Must("proxy", "doctor"); !strings.Contains(out, fmt.Sprintf("\nok       supervisor   process %d, version", held.PID)) {
		t.Errorf("the output of doctor for healthy programs:\n%s", out)
	}
	w.Must("proxy", "--handoff")
	w.Gone(proxy)
	proxy = w.Only("proxy")
	w.finds("orphans", "ok", "none", "", 0)
	w.finds("proxy", "ok", fmt.Sprint(proxy.PID), "", 0)

	w.finds("sockets", "ok", "4, none stale", "", 0)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: w.Path("dev.sock"), Net: "unix"})
	testkit.Must(t, err)
	ln.SetUnlinkOnClose(false)
	_ = ln.Close()
	w.finds("sockets", "warning", "dev.sock is stale", "proxy start --proxy dev", 1)
	w.Must("proxy", "start", "--proxy", "dev") // the fix
	w.finds("sockets", "ok", "none stale", "", 0)

	testkit.Must(t, os.Chmod(w.Dir, 0o755))
	w.finds("directories", "error", "0755", "chmod 700 "+w.Dir, 2)
	w.finds("proxy", "note", "not asked", "", 2)
	w.finds("supervisor", "ok", "1 session", "", 2)
	testkit.Must(t, os.Chmod(w.Dir, 0o700))
	w.finds("directories", "ok", w.Dir, "", 0)
	if now := w.Only("supervisor"); now != held {
		t.Errorf("the supervisor was %v; now it is %v", held, now)
	}
}

// doctor must distinguish a supervisor that does not answer from one that has ended, and must not make a
// proxy start a supervisor.
func TestDoctorDoesNotTakeUnknownForDead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Must("proxy", "new", "-d", "--id", "s", "--", "sleep", "1000")
	held := w.Only("supervisor")
	w.Stop(held)
	found, code := w.doctor("supervisor")
	held.Signal(syscall.SIGCONT)
	if len(found) != 1 || found[0].Severity != "error" || code != 2 || found[0].Fix != fmt.Sprintf("it was stopped by a signal; let it continue: kill -CONT %d", held.PID) ||
		!strings.Contains(found[0].Finding, "programs that run: 1") {
		t.Errorf("while the supervisor is stopped: exit %d, %+v", code, found)
	}
	w.finds("supervisor", "ok", "1 session", "", 0)

	w.Must("supervisor", "stop", "--sessions=end")
	w.Gone(held)
	proxy := w.Only("proxy")
	w.finds("supervisor", "note", "none runs", "", 0)
	w.finds("proxy", "ok", fmt.Sprint(proxy.PID), "", 0)
	if all := w.Running("supervisor"); len(all) > 0 {
		t.Errorf("doctor made a proxy start %v", all)
	}
}
