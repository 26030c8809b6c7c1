//go:build linux

package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// here is the name of this version.
const here = "this"

// kept is the result for connections that a handoff has kept.
const kept = "kept"

// A row is a sequence of versions, with the results for shells and connections.
type row struct {
	release    string // the release under test
	supervisor string
	proxies    []string

	shells, clients, web string
}

// rows are the combinations in which a release and this version meet.
func rows(release string) (all []*row) {
	for _, supervisor := range []string{release, here} {
		for _, proxies := range [][]string{
			{release, here}, {here, release}, {release, here, release, here}, {here, here},
		} {
			all = append(all, &row{release: release, supervisor: supervisor, proxies: proxies})
		}
	}
	return all
}

func (r *row) path() string { return strings.Join(r.proxies, " → ") }

// Shells and clients must continue whichever of two versions follows the other, and no connection may be
// closed.
// demand: S9, S13
func TestUpgrades(t *testing.T) {
	releases := previous(t)
	bins := map[string]string{here: testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor")}
	var all []*row
	for _, release := range releases {
		bins[release.name] = release.build(t)
		all = append(all, rows(release.name)...)
	}
	t.Run("rows", func(t *testing.T) {
		for _, r := range all {
			t.Run(r.supervisor+" holds, "+r.path(), func(t *testing.T) {
				t.Parallel()
				r.try(t, bins)
			})
		}
	})
	if t.Failed() {
		return
	}
	path := filepath.Join(root, ".github", "docs", "upgrade.md")
	text, err := os.ReadFile(path)
	testkit.Must(t, err)
	published, err := publish(string(text), table(all))
	testkit.Must(t, err)
	testkit.Golden(t, path, []byte(published))
}

// try runs the proxies of a row one after the other, with clients connected.
func (r *row) try(t *testing.T, bins map[string]string) {
	w := newWorld(t, bins)
	m := w.clients(r.release, w.start(r.supervisor, r.proxies[0]))
	held := w.status(here).Supervisor.PID
	for i, proxy := range r.proxies {
		if i > 0 {
			w.tryHandoff()
			m.awaitProgress()
			m.across(func() { w.handOff(r.proxies[i-1], proxy, i == 2) })
			m.awaitProgress()
		}
		for j, version := range []string{r.release, here} {
			w.showsSkew(version, proxy, r.supervisor)
			w.commands(version, fmt.Sprintf("commands-%d-%d", i, j))
		}
	}
	if m.live() && w.status(here).Supervisor.PID == held {
		r.shells = "live"
	}
	m.end()
	m.checkAnswer()
	r.clients, r.web = kept, kept // a closed connection has failed the test
}

// tryHandoff asks this version in a dry run whether it could take over.
func (w *world) tryHandoff() {
	w.T.Helper()
	old := w.status(here).Proxy.PID
	out := w.proxy(here, "--handoff", "--dry-run")
	if !strings.Contains(out, fmt.Sprintf("proxy %s could take over from pid %d, which continues to serve", here, old)) {
		w.T.Errorf("a dry run of a handoff prints %q", out)
	}
	if now := w.status(here).Proxy.PID; now != old {
		w.T.Errorf("after the dry run pid %d serves, want %d", now, old)
	}
}

// handOff replaces the running proxy, either by the command of the next version, or by the command of the
// running version with --from-dir. It waits until the old proxy has ended.
func (w *world) handOff(from, to string, fromDir bool) {
	w.T.Helper()
	old := lookup(w.status(here).Proxy.PID)
	version, args := to, []string{"--handoff"}
	if fromDir {
		version, args = from, append(args, "--from-dir", w.bins[to])
	}
	out := w.proxy(version, args...)
	var pid int
	if _, after, ok := strings.Cut(out, "serves as pid "); ok {
		_, _ = fmt.Sscan(after, &pid)
	}
	if now := w.status(here).Proxy; now.PID != pid || now.Version != to ||
		!strings.Contains(out, fmt.Sprintf("took over from pid %d,", old.PID)) {
		w.T.Fatalf("a handoff from %s, pid %d, to %s prints %q; now %s serves as pid %d", from, old.PID, to, out, now.Version, now.PID)
	}
	testkit.Eventually(w.T, limit, func() bool { return !old.Running() }, "the old proxy has ended")
}

// begin and end enclose the table in upgrade.md.
const (
	begin = "<!-- scripts/compat begin: go test ./scripts/compat -update -->\n"
	end   = "<!-- scripts/compat end -->\n"
)

// publish replaces the table in the text.
func publish(text, table string) (string, error) {
	before, rest, ok := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("upgrade.md lacks %q and %q", begin, end)
	}
	return before + begin + table + end + after, nil
}

func table(all []*row) string {
	var b strings.Builder
	b.WriteString("| supervisor | proxies | shells | clients of the Unix socket | WebSockets |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.supervisor, r.path(), r.shells, r.clients, r.web)
	}
	return b.String()
}
