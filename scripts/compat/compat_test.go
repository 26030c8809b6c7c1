//go:build linux

package compat

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"holdfast/shared/testkit"
)

// here is what this version calls itself.
const here = "this"

// kept is what becomes of a connection in the best case.
const kept = "kept"

// A row is some versions that follow each other, and what becomes of what they
// hold.
type row struct {
	supervisor string
	proxies    []string

	shells, clients, web string
}

// rows are the ways in which a release and this version can meet.
func rows(release string) (all []*row) {
	for _, supervisor := range []string{release, here} {
		for _, proxies := range [][]string{
			{release, here}, {here, release}, {release, here, release, here}, {here, here},
		} {
			all = append(all, &row{supervisor: supervisor, proxies: proxies})
		}
	}
	return all
}

func (r *row) path() string { return strings.Join(r.proxies, " → ") }

// Shells and clients go on whichever of two versions follows the other; what
// this costs WebSockets is what README says.
// demand: S9, S13
func TestUpgrades(t *testing.T) {
	releases := previous(t)
	bins := map[string]string{here: testkit.BuildVersion(t, here, "holdfast/proxy", "holdfast/supervisor")}
	var all []*row
	t.Run("rows", func(t *testing.T) {
		for _, release := range releases {
			bins[release.name] = release.build(t)
			all = append(all, rows(release.name)...)
		}
		for _, r := range all {
			t.Run(r.supervisor+" holds "+r.path(), func(t *testing.T) {
				t.Parallel()
				r.try(t, bins)
			})
		}
	})
	if t.Failed() {
		return
	}
	table := markdown(all)
	t.Log("\n" + table)
	path := filepath.Join(root, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Golden(t, path, publish(t, string(text), table))
}

// try has the proxies follow each other, with clients that look on.
func (r *row) try(t *testing.T, bins map[string]string) {
	w := newWorld(t, bins)
	versions := slices.Compact(slices.Sorted(slices.Values(append(r.proxies[:len(r.proxies):len(r.proxies)], r.supervisor, here))))
	release := versions[len(versions)-1]
	m := w.clients(release, w.start(r.supervisor, r.proxies[0]))
	pid := w.status(here).Supervisor.PID
	web := []string{}
	for i, proxy := range r.proxies {
		if i > 0 {
			w.dryRun(m, r.proxies[i])
			w.follow(r.proxies[i-1], proxy, i%2 == 0)
			m.goOn()
			web = append(web, m.closed())
		}
		for _, version := range versions {
			w.showsSkew(version, proxy, r.supervisor)
			w.commands(version, fmt.Sprint("by-", version, "-", i))
		}
	}
	_ = pid
	_ = web
}
