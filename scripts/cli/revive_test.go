//go:build linux

package cli

import (
	"path/filepath"
	"testing"
)

// A lost session must be started again when the user agrees, or if its label says so.
// demand: D1
func TestRevive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "HOLDFAST_RESUME_ARGV=sh=sh -c {again}")
	w.shell("asks", "echo first; exec cat")
	w.must("new", "-d", "--id", "shell", "--label", "revive=shell", "--", "sh", "-c", "echo first; exec cat")
	w.must("new", "-d", "--id", "argv", "--label", "revive=argv", "--", "sh", "-c", "echo first; exec cat")
	w.must("new", "-d", "--id", "resumes", "--label", "again=echo resumed; exec cat", "--", "sh", "-c", "echo first; exec cat")
	for _, id := range []string{"asks", "shell", "argv", "resumes"} {
		w.shows(id, "first")
		if !eventually(func() bool {
			stored, _ := filepath.Glob(filepath.Join(w.Dir, "sessions", id+"@*", "0*"))
			return len(stored) > 0
		}) {
			t.Fatalf("session %s is not stored", id)
		}
	}
	watcher := w.open("attach", "asks")
	watcher.expect("first")
	w.Kill(w.Only("proxy"))
	w.KillBoth()

	watcher.expect("[asks was lost with the machine; this is its screen at ")
	watcher.expect("? y or n")
	watcher.typ("n\r")
	watcher.ends(0, "")
	p := w.open("attach", "asks")
	p.expect("start it again in " + w.Dir + "? y or n")
	p.typ("n\r")
	p.ends(0, "")
	p = w.open("attach", "asks")
	p.expect("? y or n")
	p.typ("y\r")
	p.typ("echo $((6*7))\r") // no input is lost, even before the shell prompts
	w.shows("asks", "\n42\n")
	p.close()
	p = w.open("attach", "shell")
	p.expect("because revive is shell")
	p.typ("echo $((6*7))\r")
	w.shows("shell", "\n42\n")
	p.close()
	p = w.open("attach", "argv")
	p.expect("because revive is argv")
	w.shows("argv", "──\nfirst\n")
	p.typ("echoed\r")
	w.shows("argv", "first\nechoed\nechoed\n")
	p.close()
	w.must("revive", "-d", "resumes")
	w.shows("resumes", "resumed")
}
