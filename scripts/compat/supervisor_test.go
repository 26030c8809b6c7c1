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

// A supervisor of a release becomes this version, and this version becomes the release, while
// clients look on. The next supervisor, after a kill, adopts what the one before has saved.
// demand: S10, S13
func TestSupervisorBecomesAnother(t *testing.T) {
	for _, release := range previous(t) {
		for _, path := range [][]string{{release.name, here}, {here, release.name}} {
			t.Run(path[0]+" becomes "+path[1], func(t *testing.T) {
				t.Parallel()
				from, to := path[0], path[1]
				w := newWorld(t, map[string]string{
					here:         testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor"),
					release.name: release.build(t),
				})
				m := w.clients(release.name, w.start(from, from))
				pid := w.status(here).Supervisor.PID
				out := w.must(to, "supervisor", "--upgrade", "--dry-run")
				if !strings.HasPrefix(out, to+" could ") {
					t.Errorf("a trial says %q", out)
				}
				m.goOn()
				if out = w.must(to, "supervisor", "--upgrade"); !strings.HasPrefix(out, from+" became "+to+",") {
					t.Errorf("an upgrade says %q", out)
				}
				m.goOn()
				if s := w.status(here).Supervisor; s.PID != pid || s.Version != to {
					t.Errorf("it was pid %d, and is pid %d of %s", pid, s.PID, s.Version)
				}
				w.KillSupervisor()
				m.goOn()
				w.showsSkew(here, from, to)
				w.commands(to, "commands")
				if !m.live() {
					t.Error("a shell is lost")
				}
				m.end()
			})
		}
	}
}

// proxy upgrade replaces both programs of a release.
// demand: S10, S13
func TestUpgradeBoth(t *testing.T) {
	for _, release := range previous(t) {
		t.Run(release.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				here:         testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor"),
				release.name: release.build(t),
			})
			m := w.clients(release.name, w.start(release.name, release.name))
			w.proxy(here, "upgrade", "--dry-run")
			m.goOn()
			w.showsSkew(here, release.name, release.name)
			w.proxy(here, "upgrade")
			m.goOn()
			w.showsSkew(here, here, here)
			if !m.live() {
				t.Error("a shell is lost")
			}
			m.end()
		})
	}
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
