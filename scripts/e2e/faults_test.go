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

// A fate is the required effect of a failed handoff on connections that were open before it.
type fate int

const (
	kept   fate = iota // the connections stay open
	closed             // the connections are closed, and clients connect again
	either             // a connection may stay open or be closed
)

// A fault is a failure during a handoff, with its required effects.
type fault struct {
	old, new string // the fault of the old and of the new program, as STEP=HOW
	// fromDir is a script that replaces the new program.
	fromDir string
	// clients is the number of additional idle connections. before prepares the old proxy.
	clients int
	before  func(*testing.T, process)
	limit   int // the new proxy's limit of descriptors, or 0 for the usual limit

	clientsAre fate
	took       bool   // the new proxy serves afterwards, otherwise the old one
	nobody     bool   // no proxy serves until the next command starts one
	noTCP      bool   // the proxy that serves afterwards does not listen on TCP
	says       string // a part of the error text of the command
}

// Whatever step of a handoff fails, every shell must live, exactly one proxy must serve, and connections must
// stay open if that is possible.
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
		testkit.Must(t, answers(s, id, 0))
		all = append(all, s)
	}
	sleeper, err := d.terminal(framed, "flood", protocol.ModeReadOnly)
	testkit.Must(t, err)
	t.Cleanup(func() { _ = sleeper.Close() })
	for range f.clients {
		p, err := d.greeted(framed)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = p.Close() })
	}

	old := w.Only("proxy")
	if f.before != nil {
		f.before(t, old)
	}
	r := f.handOff(t, w)
	_ = os.Truncate(w.Path("proxy.crash"), 0) // it contains the panic of the fault
	if f.took != (r.Code == 0) || !strings.Contains(r.Errout, f.says) {
		t.Errorf("result of the handoff command: %v", r)
	}
	w.Env = good
	if strings.HasSuffix(f.old, "=stop") { // the command may end before the old proxy has reached its fault
		testkit.Eventually(t, limit, func() bool { state, _ := testkit.Stat(old.PID); return state == "T" }, "the old proxy hangs")
	}
	_ = syscall.Kill(old.PID, syscall.SIGCONT)
	if f.nobody {
		w.Must("proxy", "ls")
	}
	if now := w.Only("proxy"); (now == old) == (f.took || f.nobody) {
		t.Errorf("process %d serves; the old proxy is process %d", now.PID, old.PID)
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
			t.Errorf("%v: the connection from before the handoff is kept although it must be closed, or closed although it must be kept: %v", by, err)
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
			t.Errorf("shell %d has ended", p.PID)
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

// answers types a word that is different for each call, and waits for its echo.
func answers(s terminal, id string, time int) error {
	word := fmt.Sprintf("<%s %d>", id, time)
	if _, err := s.Write([]byte(word)); err != nil {
		return err
	}
	_, err := until(s, word)
	return err
}

// handOff runs the handoff command with the fault.
func (f fault) handOff(t *testing.T, w *world) result {
	args := []string{"--handoff", "--timeout", "1500ms"}
	if f.fromDir != "" {
		dir := t.TempDir()
		testkit.WriteProgram(t, filepath.Join(dir, "proxy"), []byte("#!/bin/sh\n"+f.fromDir+"\n"))
		args = append(args, "--from-dir", dir)
	}
	if f.limit == 0 {
		return w.Run("proxy", args...)
	}
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n", f.limit, w.Program("proxy"))
	testkit.WriteProgram(t, filepath.Join(dir, "proxy"), []byte(script))
	return w.Run("proxy", append(args, "--from-dir", dir)...)
}

// almostFull limits a process to 20 more descriptors than it has.
func almostFull(t *testing.T, p process) {
	t.Helper()
	n := uint64(len(fds(p.PID)) + 20)
	testkit.Must(t, unix.Prlimit(p.PID, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}, nil))
}
