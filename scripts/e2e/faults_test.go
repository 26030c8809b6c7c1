package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// What may become of the connections that were open before a handoff that fails.
type fate int

const (
	kept   fate = iota // they go on
	closed             // their clients come again
	either             // one or the other: both is right
)

// A fault is what goes wrong in a handoff, and what is left then.
type fault struct {
	old, new string // the fault of the old and of the new program: STEP=HOW
	// fromDir is a script in the place of the new program.
	fromDir string
	// clients are as many idle ones more; before prepares the old proxy.
	clients int
	before  func(*testing.T, process)
	limit   int // of the new one's descriptors

	clientsAre fate
	took       bool   // the new proxy serves, else the old one does
	nobody     bool   // nobody does, until the next command
	noTCP      bool   // whoever serves then was not asked to serve there
	says       string // what the command says of it
}

// Whatever fails at whatever step of a handoff, every shell lives, one proxy
// alone serves, and connections that can be kept are.
// demand: S8, S9
func TestHandoffFaults(t *testing.T) {
	t.Parallel()
	const gaveUp = "the old proxy continues to serve"
	for name, f := range map[string]fault{
		"nothing": {took: true},

		"the new one dies with what it was offered":        {new: "taken=kill", says: gaveUp},
		"the new one panics with what it was offered":      {new: "taken=panic", says: gaveUp},
		"the new one hangs with what it was offered":       {new: "taken=stop", says: gaveUp},
		"the new one dies when it has compared":            {new: "compared=kill", says: gaveUp},
		"the new one hangs when it has compared":           {new: "compared=stop", says: gaveUp},
		"the new one sees another snapshot":                {new: "snapshot=alter", says: "the two proxies differ"},
		"the new one dies with connections":                {new: "received=kill", says: gaveUp},
		"the new one hangs with connections":               {new: "received=stop", says: gaveUp},
		"the new one hangs, alive, with connections":       {new: "received=hang", says: gaveUp},
		"the new one dies when it has attached":            {new: "attached=kill", says: gaveUp, clientsAre: either},
		"the new one hangs when it has attached":           {new: "attached=stop", says: gaveUp, clientsAre: closed},
		"the new one dies when all is its own":             {new: "accepting=kill", says: gaveUp, clientsAre: closed},
		"the new one hangs when all is its own":            {new: "accepting=stop", says: gaveUp, clientsAre: closed},
		"the new one dies when it has said that it serves": {new: "serving=kill", clientsAre: closed, nobody: true, noTCP: true, says: gaveUp},

		"the old one dies when it is asked":         {old: "asked=kill", took: true, clientsAre: closed, noTCP: true},
		"the old one dies when it has offered":      {old: "offered=kill", took: true, clientsAre: closed},
		"the old one dies when it has looked":       {old: "looked=kill", took: true, clientsAre: closed},
		"the old one dies when it is to begin":      {old: "prepared=kill", took: true, clientsAre: closed},
		"the old one dies with all frozen":          {old: "frozen=kill", took: true, clientsAre: closed},
		"the old one dies when it has given":        {old: "given=kill", took: true},
		"the old one dies when it has let go":       {old: "let go=kill", took: true},
		"the old one dies when it is done":          {old: "done=kill", took: true},
		"the old one dies when it may leave":        {old: "committed=kill", took: true},
		"the old one hangs when it is asked":        {old: "asked=stop", says: gaveUp},
		"the old one hangs when it has offered":     {old: "offered=stop", says: gaveUp},
		"the old one hangs when it is to begin":     {old: "prepared=stop", says: gaveUp},
		"the old one hangs when it has given":       {old: "given=stop", says: gaveUp, clientsAre: either},
		"the old one hangs when it has let go":      {old: "let go=stop", says: gaveUp, clientsAre: closed},
		"the old one hangs when it is done":         {old: "done=stop", took: true},
		"the old one hangs when it may leave":       {old: "committed=stop", took: true},
		"the new program crashes":                   {fromDir: "exit 3", says: gaveUp},
		"the new program hangs":                     {fromDir: "exec sleep 1000", says: gaveUp},
		"the new program is none":                   {fromDir: "\x00", says: gaveUp},
		"the new one has no room for connections":   {clients: 40, limit: 60, says: gaveUp},
		"the old one has no room for duplicates":    {clients: 40, before: almostFull, says: gaveUp},
		"more clients than are moved at once":       {clients: 60, took: true},
		"more clients, and the new one hangs early": {clients: 60, new: "received=stop", says: gaveUp},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.play(t)
		})
	}
}

func (f fault) play(t *testing.T) {
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	good := w.Env
	w.Env = append(good[:len(good):len(good)], "HOLDFAST_FAULT="+f.old)
	d := w.doors()
	w.Env = append(good[:len(good):len(good)], "HOLDFAST_FAULT="+f.new)
	shells := []process{lookup(w.spawn(d.c, "flood", burstsOf("0123456789abcde")).PID)}
	var all []terminal
	for by := framed; by <= rawTCP; by++ {
		id := fmt.Sprint("echo-", int(by))
		shells = append(shells, lookup(w.spawn(d.c, id, echoing).PID))
		s := f.opens(t, d, by, id)
		t.Cleanup(func() { _ = s.Close() })
		if err := answers(s, id, 0); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	sleeper, err := d.terminal(framed, "flood", protocol.ModeReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Close() })
	for range f.clients {
		p, err := d.greeted(framed)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
	}

	old := w.Only("proxy")
	if f.before != nil {
		f.before(t, old)
	}
	r := f.handOff(t, w)
	_ = os.Truncate(w.Path("proxy.crash"), 0) // of a panic that was asked for
	if f.took != (r.Code == 0) || !strings.Contains(r.Errout, f.says) {
		t.Errorf("the command: %v", r)
	}
	w.Env = good
	if strings.HasSuffix(f.old, "=stop") { // the command may end before the old proxy has come to its fault
		testkit.Eventually(t, limit, func() bool { state, _ := testkit.Stat(old.PID); return state == "T" }, "the old proxy hangs")
	}
	_ = syscall.Kill(old.PID, syscall.SIGCONT)
	if f.nobody {
		w.Must("proxy", "ls")
	}
	if now := w.Only("proxy"); (now == old) == (f.took || f.nobody) {
		t.Errorf("process %d serves, the old one is %d", now.PID, old.PID)
	}
	d.c = w.connect(client.Options{Name: "e2e"})
	for i, s := range all {
		by := way(i)
		if f.noTCP && (by == webTCP || by == rawTCP) {
			continue
		}
		id := fmt.Sprint("echo-", i)
		err := answers(s, id, 1)
		if f.clientsAre == kept && err != nil || f.clientsAre == closed && err == nil {
			t.Errorf("%v: it is not as it should be with its connection: %v", by, err)
		}
		if err != nil {
			s = f.opens(t, d, by, id)
			err = answers(s, id, 2)
			_ = s.Close()
		}
		if err != nil {
			t.Errorf("%v: %v", by, err)
		}
	}
	for _, p := range shells {
		if !p.Running() {
			t.Errorf("the shell %d has ended", p.PID)
		}
	}
}

func (f fault) opens(t *testing.T, d *doors, by way, id string) terminal {
	t.Helper()
	s, err := d.terminal(by, id, protocol.ModeShared)
	if err == nil {
		err = s.SetDeadline(time.Now().Add(limit))
	}
	if err != nil {
		t.Fatalf("%v: %v", by, err)
	}
	return s
}

// answers types a word, another one each time, and reads it back.
func answers(s terminal, id string, time int) error {
	word := fmt.Sprintf("<%s %d>", id, time)
	if _, err := s.Write([]byte(word)); err != nil {
		return err
	}
	_, err := until(s, word)
	return err
}

// handOff runs the command.
func (f fault) handOff(t *testing.T, w *world) result {
	args := []string{"--handoff", "--timeout", "1500ms"}
	if f.fromDir != "" {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "proxy"), []byte("#!/bin/sh\n"+f.fromDir+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--from-dir", dir)
	}
	if f.limit == 0 {
		return w.Run("proxy", args...)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", f.limit, w.Program("proxy"))
	if err := os.WriteFile(filepath.Join(dir, "proxy"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return w.Run("proxy", append(args, "--from-dir", dir)...)
}

// almostFull leaves a process room for a few descriptors more.
func almostFull(t *testing.T, p process) {
	t.Helper()
	n := uint64(len(fds(p.PID)) + 20)
	if err := unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
		t.Fatal(err)
	}
}
