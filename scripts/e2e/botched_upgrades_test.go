package e2e

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/shared/link"
	"holdfast/shared/logging"
	"holdfast/shared/socket"
	"holdfast/shared/testkit"
)

// impostorPrefix begins the names by which this program is run in the place of a
// supervisor; how it fails is the rest.
const impostorPrefix = "impostor "

// impostor says on trial that it can go on, mostly, and cannot.
func impostor(how string) error {
	if os.Getenv("HOLDFAST_INHERIT_TRIAL") != "" && !strings.HasSuffix(how, "on trial") {
		fmt.Println("holdfast: can go on: v3.0.0")
		return nil
	}
	switch strings.Fields(how)[0] {
	case "panics":
		panic("as it was told to")
	case "fails":
		return errors.New("it was told to fail")
	case "killed":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "hangs":
		<-time.After(time.Hour)
	}
	return nil // in silence
}

// impostor returns a program that fails in some way.
func (w *world) impostor(how string) string {
	w.T.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.T.Fatal(err)
	}
	path := w.Path(impostorPrefix + how)
	if err := os.Symlink(exe, path); err != nil {
		w.T.Fatal(err)
	}
	return path
}

// write makes a file, one that can be run.
func (w *world) write(name string, content []byte) string {
	w.T.Helper()
	path := w.Path(name)
	if err := os.WriteFile(path, content, 0o700); err != nil {
		w.T.Fatal(err)
	}
	return path
}

func (w *world) script(name, script string) string {
	return w.write(name, []byte("#!/bin/sh\n"+script+"\n"))
}

// ask asks the supervisor to become the program at a path, as upgrade commands do.
func (w *world) ask(path string, dryRun bool) error {
	w.T.Helper()
	nc, _, err := socket.Dial(w.ctx(), w.Path("supervisor.sock"))
	if err != nil {
		w.T.Fatal(err)
	}
	log, closer, err := logging.New(logging.Options{Path: w.Path("e2e.log")})
	if err != nil {
		w.T.Fatal(err)
	}
	defer closer.Close()
	conn, _, _, err := link.Dial(nc, wire.Hello{Protocol: protocol.Supported(), PID: os.Getpid(), Name: "e2e"}, log)
	if err != nil {
		w.T.Fatal(err)
	}
	defer conn.Close()
	_, err = conn.Call(w.ctx(), wire.Upgrade{Program: path, DryRun: dryRun})
	return err
}

// A botched is an upgrade that cannot be.
type botched struct{ name, path, says string }

// unrunnable are files that are no programs of this machine, or not whole.
func (w *world) unrunnable() []botched {
	w.T.Helper()
	good, err := os.ReadFile(w.Program("supervisor"))
	if err != nil {
		w.T.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(good))
	if err != nil {
		w.T.Fatal(err)
	}
	loaded := 0 // the rest is for debuggers
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			loaded = max(loaded, int(p.Off+p.Filesz))
		}
	}
	patched := func(at int, b ...byte) []byte {
		p := bytes.Clone(good)
		copy(p[at:], b)
		return p
	}
	fifo := w.Path("fifo")
	if err := unix.Mkfifo(fifo, 0o700); err != nil {
		w.T.Fatal(err)
	}
	plain := w.write("plain", good)
	if err := os.Chmod(plain, 0o600); err != nil {
		w.T.Fatal(err)
	}
	all := []botched{
		{"another machine's", w.write("another", patched(18, 0xf7, 0)), "exec format error"},
		{"no ELF", w.write("broken", patched(0, 'X')), "exec format error"},
		{"a text", w.write("text", []byte("This is no program.\n")), "exec format error"},
		{"empty", w.write("empty", nil), "exec format error"},
		{"for an interpreter that is missing", w.write("odd", []byte("#!/does/not/exist\n")), "no such file"},
		{"a directory", w.Dir, "it is not an executable regular file"},
		{"a named pipe", fifo, "it is not an executable regular file"},
		{"a device", "/dev/null", "it is not an executable regular file"},
		{"not executable", plain, "it is not an executable regular file"},
		{"missing", w.Path("missing"), "no such file"},
	}
	for _, n := range []int{16, 64, 4096, loaded / 4, loaded / 2, loaded * 3 / 4} {
		all = append(all, botched{fmt.Sprintf("cut after %d bytes", n), w.write(fmt.Sprint("cut-", n), good[:n]), ""})
	}
	return all
}

// misbehaving are programs that run, and do not say that they can go on.
func (w *world) misbehaving() []botched {
	w.T.Helper()
	return []botched{
		{"panics", w.impostor("panics on trial"), "as it was told to"},
		{"fails", w.impostor("fails on trial"), "it was told to fail"},
		{"is silent", w.impostor("silent on trial"), "did not report that it can continue"},
		{"is killed", w.impostor("killed on trial"), "signal: killed"},
		{"says something else", w.script("else", "echo hello"), "hello"},
		{"has no end", w.script("talks", "exec yes"), "broken pipe"},
		{"leaves a child", w.script("leaves", "echo 'holdfast: can go on: v3'; sleep 3 &"), "WaitDelay"},
	}
}

// A held is a world with sessions that are used while upgrades are asked for, and
// what must not change of it.
type held struct {
	*movers
	flat     *stream
	children map[protocol.SessionID]process
	is       protocol.ProcessStatus
	longest  [2]time.Duration
}

func newHeld(t *testing.T) *held {
	one, _ := releases(t)
	w := newWorld(t, "HOLDFAST_CRASH_LIMIT=1000000", "HOLDFAST_CRASH_PAUSE=1ms", "HOLDFAST_START_TIMEOUT=2s")
	w.Bin = one.bin
	h := &held{movers: w.movers()}
	h.relinks = true
	w.spawn(h.c, "flow", trickling)
	w.spawn(h.c, "waited", shell(`read x; exit 7`))
	w.spawn(h.c, "flood", burstsOf("0123456789abcde"))
	h.flat = newStream(t, w, "stream")
	for i := range h.longest {
		id := fmt.Sprint("echo-", i)
		w.echoAlone(h.c, id)
		h.typist(anyWay(i), id, 25*time.Millisecond, &h.longest[i])
		h.follow(anyWay(i))
		h.run("waiter", apiWay(i), func(p *peer) error { return p.waitsFor("waited") })
	}
	h.begin()
	h.children, h.is = w.pidsOf(h.c), w.supervisor(h.c)
	return h
}

// unharmed fails the test if anything has happened to the sessions or who uses them,
// or to the supervisor but that it has died deaths times.
func (h *held) unharmed(t *testing.T, deaths int) {
	t.Helper()
	h.step()
	h.flat.flow(t, 1)
	now := h.supervisor(h.c)
	if now.Instance != h.is.Instance || now.Version != h.is.Version || now.Upgrades != h.is.Upgrades || now.Keeper == nil ||
		now.Keeper.PID != h.is.Keeper.PID || now.Keeper.Starts != h.is.Keeper.Starts+deaths || (now.PID == h.is.PID) != (deaths == 0) {
		t.Fatalf("the supervisor was %+v of %+v, and is %+v of %+v", h.is, h.is.Keeper, now, now.Keeper)
	}
	h.is = now
	if now := h.pidsOf(h.c); !reflect.DeepEqual(now, h.children) {
		t.Fatalf("the children were %v, and are %v", h.children, now)
	}
	select {
	case <-h.failed:
		t.Fatal("a connection has failed")
	default:
	}
}

// refuses asks for an upgrade that is refused, or told to be one that would be.
func (h *held) refuses(t *testing.T, b botched) {
	t.Helper()
	for _, dryRun := range []bool{true, false} {
		err := h.ask(b.path, dryRun)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != protocol.CodeUpgradeRefused || e.Message == "" || !strings.Contains(e.Message, b.says) {
			t.Errorf("%s, only tried: %v: %v", b.name, dryRun, err)
		}
		h.unharmed(t, 0)
	}
}

func (h *held) finish(t *testing.T) {
	t.Helper()
	h.end()
	h.flat.finish(t)
}

// What cannot become the supervisor is refused, and why is said; a trial says the
// same. Nothing else happens.
// demand: S10
func TestBotchedUpgrades(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	before := usageOf(h.is.PID)
	for _, b := range append(h.unrunnable(), h.misbehaving()...) {
		h.refuses(t, b)
	}
	var now usage
	if !eventually(func() bool {
		now = usageOf(h.is.PID)
		return besideQueues(now) <= besideQueues(before) && now.Children <= before.Children
	}) {
		t.Errorf("the supervisor held %+v, and holds %+v: %v", before, now, fds(h.is.PID))
	}
	h.Env = append(h.Env, "HOLDFAST_SUPERVISOR="+h.Path("text"))
	for _, args := range [][]string{{"upgrade", "--dry-run"}, {"upgrade"}} {
		if r := h.world.Run("proxy", args...); r.Code == 0 || !strings.Contains(r.Errout, "exec format error") {
			t.Errorf("proxy %v: %v", args, r)
		}
		h.unharmed(t, 0)
	}
	h.finish(t)
}

// A program that never says whether it can go on is not waited for longer than a
// trial may take.
// demand: S10
func TestHangingUpgrade(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	before := len(h.world.Running(""))
	h.refuses(t, botched{"hangs", h.impostor("hangs on trial"), "did not answer"})
	h.refuses(t, botched{"hangs with a child", h.script("hangs", "sleep 1000; exit 3"), "did not answer"})
	testkit.Eventually(t, limit, func() bool { return len(h.world.Running("")) <= before }, "what was tried is gone")
	h.finish(t)
}

// A program that passes its trial and dies nevertheless, at whatever it does first,
// costs a pause: the keeper starts the last good one again, which goes on.
// demand: S10
func TestDyingUpgrade(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	for _, b := range []botched{
		{name: "panics", path: h.impostor("panics")},
		{name: "fails", path: h.impostor("fails")},
		{name: "is silent", path: h.impostor("silent")},
		{name: "is killed", path: h.impostor("killed")},
		{name: "is a script", path: h.script("passes", "echo 'holdfast: can go on: v3'")},
		{name: "hangs", path: h.impostor("hangs")},
	} {
		if err := h.ask(b.path, true); err != nil {
			t.Errorf("%s passes no trial, which it should: %v", b.name, err)
		}
		h.unharmed(t, 0)
		asked := lookup(h.is.PID)
		if err := h.ask(b.path, false); err == nil || code(err) == protocol.CodeUpgradeRefused {
			t.Errorf("%s: %v", b.name, err)
		}
		h.Gone(asked) // the keeper ends one that hangs
		h.unharmed(t, 1)
	}
	h.finish(t)
}
