//go:build linux

package compat

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"holdfast/shared/testkit"
)

// next is the name of a version after this one.
const next = "next"

// A supervisor of a release is upgraded to this version, and a supervisor of this version to the release,
// while clients read and type. After a kill, the next supervisor must adopt the state that the previous one
// has saved.
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
					t.Errorf("a dry run of the upgrade prints %q", out)
				}
				m.awaitProgress()
				if out = w.must(to, "supervisor", "--upgrade"); !strings.HasPrefix(out, from+" became "+to+",") {
					t.Errorf("the upgrade prints %q", out)
				}
				m.awaitProgress()
				if s := w.status(here).Supervisor; s.PID != pid || s.Version != to {
					t.Errorf("the supervisor was pid %d; now it is pid %d of version %s", pid, s.PID, s.Version)
				}
				w.KillSupervisor()
				m.awaitProgress()
				w.showsSkew(here, from, to)
				w.commands(to, "commands")
				if !m.live() {
					t.Error("a session has lost its child")
				}
				m.end()
			})
		}
	}
}

// proxy upgrade must replace both programs of a release.
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
			m.awaitProgress()
			w.showsSkew(here, release.name, release.name)
			w.proxy(here, "upgrade")
			m.awaitProgress()
			w.showsSkew(here, here, here)
			if !m.live() {
				t.Error("a session has lost its child")
			}
			m.end()
		})
	}
}

// A proxy of a release starts this version's supervisor. The proxy and its clients must continue while the
// supervisor is killed, loses its keeper, and is upgraded.
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
						t.Errorf("the upgrade prints %q", out)
					}
				}, next},
				{"killed after an upgrade", func() { w.KillSupervisor() }, next},
			} {
				replace.do() // a request to an old proxy at this moment fails as retryable
				m.awaitProgress()
				s := w.status(release.name)
				if s.Proxy.PID != proxy || s.Supervisor.Version != replace.is {
					t.Errorf("%s: %+v, %+v", replace.how, s.Proxy, s.Supervisor)
				}
				w.commands(release.name, fmt.Sprint("commands-", i))
				if !m.live() {
					t.Fatalf("%s: a session has lost its child", replace.how)
				}
			}
			m.end()
		})
	}
}

// killKeeper kills the keeper. The supervisor becomes the keeper and starts the next supervisor.
func (w *world) killKeeper() {
	w.T.Helper()
	was := w.supervisor()
	lookup(was.Parent()).Signal(syscall.SIGKILL)
	testkit.Eventually(w.T, limit, func() bool { now := w.supervisor(); return now.PID != was.PID && now.Parent() == was.PID }, "the supervisor has become the keeper of another supervisor")
}
