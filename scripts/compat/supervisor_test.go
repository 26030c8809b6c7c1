//go:build linux

package compat

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// next is what a later version than this one is called.
const next = "next"

// A supervisor of a release that cannot become another program is told from one that
// can: it and its proxy are left as they are, and the command says so.
// demand: S10, S13
func TestTooOld(t *testing.T) {
	for _, release := range previous(t) {
		t.Run(release.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				here:         testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor"),
				release.name: release.build(t),
			})
			w.start(release.name, release.name)
			was := w.status(here)
			s := w.sleeper(release.name)
			for _, command := range []struct {
				program string
				args    []string
				code    int
				says    string
			}{
				{"proxy", []string{"upgrade", "--dry-run"}, 76, "is too old to be upgraded in place"},
				{"proxy", []string{"upgrade"}, 76, "is too old to be upgraded in place"},
				{"supervisor", []string{"--upgrade", "--dry-run"}, 1, "is too old to become another program; it goes on"},
				{"supervisor", []string{"--upgrade"}, 1, "is too old to become another program; it goes on"},
			} {
				r := w.run(nil, here, command.program, command.args...)
				if r.Code != command.code || !strings.Contains(r.Errout, release.name) || !strings.Contains(r.Errout, command.says) {
					t.Errorf("%s %v: %v", command.program, command.args, r)
				}
			}
			now := w.status(here)
			if now.Proxy.PID != was.Proxy.PID || now.Supervisor.PID != was.Supervisor.PID || !s.Running() {
				t.Errorf("it was %+v, %+v, and is %+v, %+v", was.Proxy, was.Supervisor, now.Proxy, now.Supervisor)
			}
			w.proxy(here, "--handoff")
			w.showsSkew(here, here, release.name)
			if !s.Running() {
				t.Error("the shell has ended with the old proxy")
			}
		})
	}
}

// sleeper starts a session and returns its child.
func (w *world) sleeper(version string) process {
	w.T.Helper()
	w.proxy(version, "new", "--detach", "--early-exit", "0", "--id", "sleeper", "--", "sleep", "1000")
	c := w.connect()
	info, err := c.SessionInfo(w.ctx(), "sleeper")
	if err != nil {
		w.T.Fatal(err)
	}
	return lookup(info.PID)
}

// A proxy of a release starts this version's supervisor, and it and its clients go on
// while that is killed, loses its keeper, and becomes another program.
// demand: S10, S13
func TestReleasedProxyOfReplacedSupervisor(t *testing.T) {
	for _, release := range previous(t) {
		t.Run(release.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				here:         testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor"),
				next:         testkit.BuildVersion(t, next, "holdfast/proxy", "holdfast/supervisor"),
				release.name: release.build(t),
			})
			w.Env = append(w.Env, "HOLDFAST_SUPERVISOR="+w.command(here, "supervisor").Path)
			m := w.clients(release.name, w.startProxy(release.name))
			w.showsSkew(release.name, release.name, here)
			proxy := w.status(here).Proxy.PID
			for i, replace := range []struct {
				how string
				do  func()
				is  string
			}{
				{"killed", func() { w.KillSupervisor() }, here},
				{"without its keeper", w.killKeeper, here},
				{"upgraded", func() {
					out := w.must(next, "supervisor", "--upgrade")
					if !strings.HasPrefix(out, here+" became "+next+",") {
						t.Errorf("an upgrade says %q", out)
					}
				}, next},
				{"killed after an upgrade", func() { w.KillSupervisor() }, next},
			} {
				replace.do() // what is asked of an old proxy right then fails, to be asked again
				m.goOn()
				s := w.status(release.name)
				if s.Proxy.PID != proxy || s.Supervisor.Version != replace.is {
					t.Errorf("%s: %+v, %+v", replace.how, s.Proxy, s.Supervisor)
				}
				w.commands(release.name, fmt.Sprint("commands-", i))
				if !m.live() {
					t.Fatalf("%s: a shell is lost", replace.how)
				}
			}
			if got := m.closed(); got != kept {
				t.Errorf("WebSockets were %s", got)
			}
			m.end()
		})
	}
}

// killKeeper kills the keeper. The supervisor takes its place, and starts the next one.
func (w *world) killKeeper() {
	w.T.Helper()
	was := w.supervisor()
	lookup(was.Parent()).Signal(syscall.SIGKILL)
	testkit.Eventually(w.T, limit, func() bool { now := w.supervisor(); return now.PID != was.PID && now.Parent() == was.PID }, "the supervisor has become the keeper of another")
}
