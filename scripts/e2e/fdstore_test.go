//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// storeUnit is the unit of operate.md.
const storeUnit = `[Service]
Type=notify
NotifyAccess=all
Environment=HOLDFAST_DIR=%s
ExecStart=%s
ExecReload=%[2]s --upgrade
KillMode=process
OOMPolicy=continue
Delegate=yes
DelegateSubgroup=holdfast
Environment=HOLDFAST_CAGE=own
Restart=on-failure
RestartSec=100ms
TimeoutStartSec=infinity
FileDescriptorStoreMax=65536
`

// A supervisor that systemd runs stores the sessions' files in systemd's file descriptor store too, so keeper
// and supervisor may die at the same time. If one of the two dies alone, the manager only learns the pid of
// the new main process.
func TestStoreUnderSystemd(t *testing.T) { ofItsOwn(t, storeUnderSystemd) }

func storeUnderSystemd(t *testing.T) {
	const unit = "holdfast-supervisor.service"
	w := newWorld(t)
	w.newManager()
	dir := t.TempDir()
	path := filepath.Join(dir, unit)
	testkit.Must(t, os.WriteFile(path, fmt.Appendf(nil, storeUnit, w.Dir, w.Program("supervisor")), 0o600))
	control := func(args ...string) string {
		t.Helper()
		out, err := w.systemctl(args...)
		if err != nil {
			t.Fatalf("systemctl %v: %v, %s", args, err, out)
		}
		return out
	}
	property := func(name string) string {
		return strings.TrimPrefix(control("show", unit, "--property="+name), name+"=")
	}
	main := func() process {
		pid, _ := strconv.Atoi(property("MainPID"))
		return lookup(pid)
	}
	serves := func(what string) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool {
			k := w.Running("keeper")
			return property("ActiveState") == "active" && len(k) == 1 && k[0] == main()
		}, what+": the keeper is the unit's main process")
		w.Only("supervisor")
	}
	control("link", path)
	control("start", unit) // start returns when the unit is ready
	w.Must("proxy", "ls")  // starts a proxy
	v := w.echo(w.connect(client.Options{Name: "e2e"}), "s")
	shell := lookup(w.info("s").PID)
	keeper, held := w.Only("keeper"), w.Only("supervisor")
	if main() != keeper {
		t.Errorf("main process %v, keeper %v", main(), keeper)
	}
	// The store must contain the session's master, ring, state, keyframe and journal, and their description.
	testkit.Eventually(t, limit, func() bool { n, _ := strconv.Atoi(property("NFileDescriptorStore")); return n >= 6 }, "systemd holds the session's files")

	w.Kill(held)
	v.ask("the supervisor was killed\n")
	held = w.Only("supervisor")
	w.Kill(keeper)
	serves("after the death of the keeper")
	v.ask("the keeper was killed\n")
	if now := w.Only("keeper"); now != held {
		t.Errorf("the keeper is %v, want the former supervisor %v", now, held)
	}

	for range 2 {
		keeper, held = w.Only("keeper"), w.Only("supervisor")
		w.Stop(keeper) // so that it does not start another supervisor
		w.Stop(held)   // so that it does not become the keeper
		held.Signal(syscall.SIGKILL)
		keeper.Signal(syscall.SIGKILL)
		w.Gone(held)
		w.Gone(keeper)
		serves("after the death of both")
		v.ask("both were killed\n")
		if now := lookup(w.info("s").PID); now != shell || !now.Running() {
			t.Fatalf("the session's child was %v; now it is %v", shell, now)
		}
	}
	control("reload", unit)
	v.ask("the supervisor was upgraded\n")
	serves("after an upgrade")

	w.Must("proxy", "kill", "s")
	w.Gone(shell)
	w.Must("supervisor", "stop")
	testkit.Eventually(t, limit, func() bool { return property("ActiveState") == "inactive" }, "the unit has become inactive")
}
