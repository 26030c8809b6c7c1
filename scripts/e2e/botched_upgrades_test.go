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

// impostorPrefix begins the names of the links through which this program runs in place of a supervisor. The
// remainder of the name says how the program fails.
const impostorPrefix = "impostor "

// impostor runs in place of a new supervisor, and fails. As a trial it reports that it can continue, unless
// how ends with "on trial". Then the trial itself fails.
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
	return nil // and report nothing
}

// impostor returns the path of a program that passes for a supervisor and then fails as how says.
func (w *world) impostor(how string) string {
	w.T.Helper()
	exe, err := os.Executable()
	testkit.Must(w.T, err)
	path := w.Path(impostorPrefix + how)
	testkit.Must(w.T, os.Symlink(exe, path))
	return path
}

// write makes an executable file.
func (w *world) write(name string, content []byte) string {
	w.T.Helper()
	path := w.Path(name)
	testkit.WriteProgram(w.T, path, content)
	return path
}

func (w *world) script(name, script string) string {
	return w.write(name, []byte("#!/bin/sh\n"+script+"\n"))
}

// ask requests the supervisor to execute the program at a path, as the upgrade commands do.
func (w *world) ask(path string, dryRun bool) error {
	w.T.Helper()
	nc, _, err := socket.Dial(w.ctx(), w.Path("supervisor.sock"))
	testkit.Must(w.T, err)
	log, closer, err := logging.New(logging.Options{Path: w.Path("e2e.log")})
	testkit.Must(w.T, err)
	defer closer.Close()
	conn, _, _, err := link.Dial(nc, wire.Hello{Protocol: protocol.Supported(), PID: os.Getpid(), Name: "e2e"}, log)
	testkit.Must(w.T, err)
	defer conn.Close()
	_, err = conn.Call(w.ctx(), wire.Upgrade{Program: path, DryRun: dryRun})
	return err
}

// A botched is an upgrade that the supervisor must refuse, with a part of the error's text.
type botched struct{ name, path, says string }

// unrunnable returns files that this machine cannot execute, or that are not complete.
func (w *world) unrunnable() []botched {
	w.T.Helper()
	good, err := os.ReadFile(w.Program("supervisor"))
	testkit.Must(w.T, err)
	f, err := elf.NewFile(bytes.NewReader(good))
	testkit.Must(w.T, err)
	loaded := 0 // the bytes after it are for debuggers
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
	testkit.Must(w.T, unix.Mkfifo(fifo, 0o700))
	plain := w.write("plain", good)
	testkit.Must(w.T, os.Chmod(plain, 0o600))
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

// misbehaving returns programs that run but do not report correctly that they can continue.
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

// A held is a world with sessions that clients use while upgrades are requested, with the processes and the
// status that no refused upgrade may change.
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

// unharmed fails the test if a child, a connection or the supervisor's identity has changed since the last
// call, or if the supervisor did not die as often as deaths says.
func (h *held) unharmed(t *testing.T, deaths int) {
	t.Helper()
	h.step()
	h.flat.flow(t, 1)
	now := h.supervisor(h.c)
	if now.Instance != h.is.Instance || now.Version != h.is.Version || now.Upgrades != h.is.Upgrades || now.Keeper == nil ||
		now.Keeper.PID != h.is.Keeper.PID || now.Keeper.Starts != h.is.Keeper.Starts+deaths || (now.PID == h.is.PID) != (deaths == 0) {
		t.Fatalf("the supervisor was %+v with keeper %+v; now it is %+v with keeper %+v", h.is, h.is.Keeper, now, now.Keeper)
	}
	h.is = now
	if now := h.pidsOf(h.c); !reflect.DeepEqual(now, h.children) {
		t.Fatalf("the children were %v; now they are %v", h.children, now)
	}
	select {
	case <-h.failed:
		t.Fatal("a connection has failed")
	default:
	}
}

// refuses requests an upgrade that the supervisor must refuse, first as a dry run.
func (h *held) refuses(t *testing.T, b botched) {
	t.Helper()
	for _, dryRun := range []bool{true, false} {
		err := h.ask(b.path, dryRun)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != protocol.CodeUpgradeRefused || e.Message == "" || !strings.Contains(e.Message, b.says) {
			t.Errorf("upgrade to a program that %s, dry run %v: %v; want upgrade_refused with the reason", b.name, dryRun, err)
		}
		h.unharmed(t, 0)
	}
}

func (h *held) finish(t *testing.T) {
	t.Helper()
	h.end()
	h.flat.finish(t)
}

// The supervisor must refuse to execute a program that cannot replace it, and must give the reason. A dry run
// must give the same reason. A refused upgrade must change no session and no connection, and must leave no
// resource behind.
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
		t.Errorf("the supervisor had %+v; after the refused upgrades it has %+v: %v", before, now, fds(h.is.PID))
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

// The supervisor must wait for a trial's report only for the time of a trial, and must then end all processes
// of the trial.
// demand: S10
func TestHangingUpgrade(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	before := len(h.world.Running(""))
	h.refuses(t, botched{"hangs", h.impostor("hangs on trial"), "did not answer"})
	h.refuses(t, botched{"hangs with a child", h.script("hangs", "sleep 1000; exit 3"), "did not answer"})
	testkit.Eventually(t, limit, func() bool { return len(h.world.Running("")) <= before }, "all processes of the trials have ended")
	h.finish(t)
}

// If a program passes its trial and fails right after the exec, the keeper must start the last program that
// worked, and all sessions must continue after a pause.
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
			t.Errorf("the trial of a program that %s: %v; want success", b.name, err)
		}
		h.unharmed(t, 0)
		asked := lookup(h.is.PID)
		if err := h.ask(b.path, false); err == nil || code(err) == protocol.CodeUpgradeRefused {
			t.Errorf("upgrade to a program that %s: %v; want an error other than upgrade_refused", b.name, err)
		}
		h.Gone(asked) // if the program hangs, the keeper ends it
		h.unharmed(t, 1)
	}
	h.finish(t)
}
