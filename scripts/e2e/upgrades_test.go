package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// A release is the pair of programs of one version.
type release struct{ version, bin string }

// releases returns two releases with different versions and with different representations of a screen in
// memory.
func releases(t testing.TB) (one, other release) {
	t.Helper()
	one.version, other.version = "v1.0.0", "v2.0.0"
	one.bin = testkit.BuildVersion(t, one.version, "holdfast/proxy", "holdfast/supervisor")
	other.bin = testkit.BuildOther(t, other.version, "vtother", "holdfast/proxy", "holdfast/supervisor")
	return one, other
}

// supervisor returns the status of the supervisor when the proxy is linked to it.
func (w *world) supervisor(c *client.Client) protocol.ProcessStatus {
	w.T.Helper()
	var st *client.Status
	testkit.Eventually(w.T, limit, func() bool {
		var err error
		st, err = c.Status(w.T.Context())
		return err == nil && st.Supervisor != nil
	}, "the proxy is linked to the supervisor")
	return *st.Supervisor
}

// upgrade upgrades the supervisor to another release, in the same process.
func (w *world) upgrade(c *client.Client, to release) {
	w.T.Helper()
	was := w.supervisor(c)
	r := w.runFrom(to.bin, "supervisor", "--upgrade")
	for n := 0; n < 5 && strings.Contains(r.Errout, "link hello: i/o deadline reached"); n++ { // the request was not sent, because the machine is busy
		w.T.Logf("upgrade to %s: %v", to.version, r)
		r = w.runFrom(to.bin, "supervisor", "--upgrade")
	}
	if r.Code != 0 || !strings.Contains(r.Out, "became "+to.version+",") {
		w.T.Fatalf("upgrade to %s: %v", to.version, r)
	}
	w.upgraded(was, w.supervisor(c), to)
}

// upgraded fails the test unless the supervisor has the same identity and keeper as before, and the release
// to.
func (w *world) upgraded(was, is protocol.ProcessStatus, to release) {
	w.T.Helper()
	if is.PID != was.PID || is.Instance != was.Instance || is.Upgrades != was.Upgrades+1 || is.Version != to.version ||
		is.Keeper == nil || was.Keeper == nil || *is.Keeper != (protocol.KeeperStatus{
		PID: was.Keeper.PID, Sessions: is.Keeper.Sessions, Starts: was.Keeper.Starts, Last: was.Keeper.Last, Lost: was.Keeper.Lost,
	}) {
		w.T.Fatalf("the supervisor was %+v; after the upgrade it is %+v", was, is)
	}
}

// After HOLDFAST_UPGRADES upgrades in a row between two releases, under 50 sessions, the children must be the
// same, no byte may be missing or duplicated in either direction, each exit code must be right, each screen
// must be unchanged, new children must be started in the same way, and no resource may have leaked.
// demand: S10
func TestManyUpgrades(t *testing.T) {
	const streams, typists, floods, shells = 2, 12, 1, 28
	upgrades := number(t, "HOLDFAST_UPGRADES", 4)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	one, other := releases(t)
	w := newWorld(t)
	w.Bin = one.bin
	m := w.movers()
	m.relinks = true
	held, keeper := w.Only("supervisor"), w.Only("keeper")

	w.spawn(m.c, "flow", trickling)
	w.spawn(m.c, "waited", shell(`read x; exit 7`))
	w.echoAlone(m.c, "quiet")
	for i := range floods {
		w.spawn(m.c, fmt.Sprint("flood-", i), burstsOf("0123456789abcde"))
	}
	for i := range shells {
		w.spawn(m.c, fmt.Sprint("shell-", i), protocol.SpawnSpec{Argv: []string{"/bin/sh"}})
	}
	pictures := w.pictures(m.c)
	vim := w.vim(m.c)
	var flat []*stream
	for i := range streams {
		flat = append(flat, newStream(t, w, fmt.Sprint("stream-", i)))
	}
	longest := make([]time.Duration, typists)
	for i := range typists {
		id := fmt.Sprint("echo-", i)
		w.echoAlone(m.c, id)
		m.follow(anyWay(m.count))
		m.typist(anyWay(m.count), id, 25*time.Millisecond, &longest[i])
		m.run("waiter", apiWay(m.count), func(p *peer) error { return p.waitsFor("waited") })
	}
	var times atomic.Int64
	m.run("fickle", framed, func(p *peer) error { return p.comesAndGoes("quiet", &m.over, &times) })
	m.view("onlooker", webUnix, "quiet", protocol.ModeReadOnly, onlooks)
	m.begin()
	children := w.pidsOf(m.c)
	alike := w.bornAs(m.c)

	m.step()
	w.upgrade(m.c, other) // a child that another program has started costs a different number of descriptors
	w.upgrade(m.c, one)
	first, firstKept := usageOf(held.PID), usageOf(keeper.PID)
	x := w.churnOn(m.c, seed)
	var screens []*protocol.ScreenContent
	for _, id := range pictures {
		screens = append(screens, w.cells(m.c, id))
	}
	begun := time.Now()
	var stall time.Duration
	var rss, rssKept [2]int // maximum of each half of the upgrades, because a new program begins with little memory
	for i := range upgrades {
		m.step()
		half := 2 * i / upgrades
		rss[half] = max(rss[half], usageOf(held.PID).RSS)
		rssKept[half] = max(rssKept[half], usageOf(keeper.PID).RSS)
		was := time.Now()
		w.upgrade(m.c, []release{other, one}[i%2])
		stall = max(stall, time.Since(was))
		for _, s := range flat {
			s.flow(t, 1)
		}
		for k, id := range pictures {
			if now := w.cells(m.c, id); !reflect.DeepEqual(now, screens[k]) {
				t.Fatalf("upgrade %d: the screen of %s was %+v; now it is %+v", i, id, screens[k], now)
			}
		}
		vim.edit(m.c, i)
		select {
		case <-m.failed:
			t.Fatal("a connection has failed")
		default:
		}
	}
	took := time.Since(begun)
	m.step()
	exits, pastes := x.stop(t)
	var last, lastKept usage
	if !eventually(func() bool {
		last, lastKept = usageOf(held.PID), usageOf(keeper.PID)
		return besideQueues(last) <= besideQueues(first) && last.Mapped <= first.Mapped && last.Children <= first.Children &&
			besideQueues(lastKept) <= besideQueues(firstKept) && lastKept.Children <= firstKept.Children
	}) {
		t.Errorf("the supervisor had %+v; now it has %+v: %v", first, last, fds(held.PID))
		t.Errorf("the keeper had %+v; now it has %+v: %v", firstKept, lastKept, fds(keeper.PID))
	}
	if upgrades > 1 && (rss[1] > rss[0]+moreRSS() || rssKept[1] > rssKept[0]+moreRSS()/4) {
		t.Errorf("the supervisor had at most %d KiB in the first half, and %d in the second; the keeper %d, and %d", rss[0], rss[1], rssKept[0], rssKept[1])
	}
	if now := w.pidsOf(m.c); !reflect.DeepEqual(now, children) {
		t.Errorf("the children were %v; now they are %v", children, now)
	}
	if now := w.bornAs(m.c); now != alike {
		t.Errorf("a child was started with\n%s\nand is now started with\n%s", alike, now)
	}
	if now := w.Only("keeper"); now != keeper || w.Only("supervisor") != held {
		t.Errorf("the keeper was %v; now it is %v; the supervisor was %v", keeper, now, held)
	}
	testkit.Must(t, m.c.Type(w.ctx(), "quiet", []byte("over")))
	m.end()
	for _, s := range flat {
		s.finish(t)
	}
	slices.Sort(longest)
	t.Logf("%d upgrades within %v under %d sessions and %d connections, the slowest took %v; the longest echo: %v (median of the typists), %v at most",
		upgrades, took.Round(time.Millisecond), len(children), m.count, stall.Round(time.Millisecond), longest[typists/2], longest[typists-1])
	t.Logf("%d brief sessions ended as expected, %d pastes of 5 MiB arrived, %d attaches meanwhile", exits, pastes, times.Load())
	t.Logf("the supervisor had %+v, then %+v; the keeper had %+v, then %+v; maximum of each half in KiB: %v, %v", first, last, firstKept, lastKept, rss, rssKept)
	w.emptied(m.c, held, one)
}

// pidsOf returns the children of all running sessions.
func (w *world) pidsOf(c *client.Client) map[protocol.SessionID]process {
	w.T.Helper()
	list, err := c.List(w.ctx(), "")
	testkit.Must(w.T, err)
	all := map[protocol.SessionID]process{}
	for _, s := range list {
		if s.State != protocol.StateExited {
			all[s.ID] = lookup(s.PID)
		}
	}
	return all
}

// emptied ends all sessions. It fails the test if the supervisor held then has more resources than a
// supervisor that was upgraded once to the same release and never had a session.
func (w *world) emptied(c *client.Client, held process, is release) {
	w.T.Helper()
	list, err := c.List(w.ctx(), "")
	testkit.Must(w.T, err)
	for _, s := range list {
		if s.State != protocol.StateExited {
			if err := c.Signal(w.ctx(), s.ID, "KILL"); err != nil {
				w.T.Error(err)
			}
		}
		_, err := c.Wait(w.ctx(), s.ID, limit)
		if err = errors.Join(err, c.Forget(w.ctx(), s.ID)); err != nil {
			w.T.Errorf("%s: %v", s.ID, err)
		}
	}
	if left := children(held.PID); len(left) > 0 {
		w.T.Errorf("the supervisor has the children %v", left)
	}
	fresh := newWorld(w.T)
	fresh.Bin = is.bin
	fresh.upgrade(fresh.dial(client.Options{}), is)
	w.holdsAsLittle("supervisor", held, fresh, fresh.Only("supervisor"))
}

// bornAs returns the attributes with which a child is started and which an upgrade must not change.
func (w *world) bornAs(c *client.Client) string {
	w.T.Helper()
	v := w.echo(c, "born")
	v.ask("cat runs")
	info, err := c.SessionInfo(w.ctx(), "born")
	testkit.Must(w.T, err)
	proc := fmt.Sprintf("/proc/%d/", info.PID)
	var is strings.Builder
	for _, name := range []string{"SigBlk", "SigIgn", "SigCgt", "ShdPnd", "Umask", "NoNewPrivs", "Seccomp", "CapInh", "CapEff", "CapBnd", "Cpus_allowed"} {
		fmt.Fprintf(&is, "%s %s\n", name, status(info.PID, name))
	}
	for _, name := range []string{"limits", "oom_score_adj", "timerslack_ns", "cgroup"} {
		b, err := os.ReadFile(proc + name)
		testkit.Must(w.T, err)
		fmt.Fprintf(&is, "%s %s\n", name, b)
	}
	cwd, err := os.Readlink(proc + "cwd")
	testkit.Must(w.T, err)
	env := slices.DeleteFunc(environ(info.PID), func(e string) bool { return e == "HOLDFAST_INSTANCE="+string(info.Instance) })
	fmt.Fprintf(&is, "nice %s\nin %s\nwith %d files\n%q\n", testkit.StatFields(info.PID)[16], cwd, len(fds(info.PID)), env)
	testkit.Must(w.T, c.Terminate(w.ctx(), "born", client.End{}))
	if m := v.last(); m.Kind != client.Exited {
		w.T.Fatalf("the last message is %+v, want the exit", m)
	}
	testkit.Must(w.T, c.Forget(w.ctx(), "born"))
	return is.String()
}

// pictureEnds are final states of screens, printed after different kinds of lines.
var pictureEnds = []string{
	"\x1b[?1049h\x1b[2J\x1b[3;7Halternate 漢字\x1b[5;10r\x1b[6;1H\x1b[45mbelow\x1b[?25l",
	strings.Repeat("x", 80) + "\r\n\x1b[1;35m" + strings.Repeat("y", 80),
	"\x1b(0lqqk\x1b(B \x1b]2;a title\a\x1b7\x1b[2;3H\x1b[38;5;20",
}

// pictures starts a session for each of pictureEnds, which echoes its input afterwards, and waits for its
// screen.
func (w *world) pictures(c *client.Client) (ids []string) {
	w.T.Helper()
	for i, end := range pictureEnds {
		text := append(transcript(i, 0, 400*lineLen), end...)
		id := fmt.Sprint("picture-", i)
		testkit.Must(w.T, os.WriteFile(w.Path(id), text, 0o600))
		w.spawn(c, id, shell("stty raw -echo; cat "+w.Path(id)+"; exec cat"))
		testkit.Eventually(w.T, limit, func() bool { return w.cells(c, id).Offset == uint64(len(text)) }, "the picture is shown")
		ids = append(ids, id)
	}
	return ids
}

// cells returns the screen of a session with its history.
func (w *world) cells(c *client.Client, id string) *protocol.ScreenContent {
	w.T.Helper()
	s, err := c.Screen(w.ctx(), protocol.SessionID(id), client.ScreenOptions{Format: protocol.ScreenCells, Scrollback: historySeen})
	testkit.Must(w.T, err)
	return s
}

// An editor is a session of vim.
type editor struct {
	w  *world
	id string // "" if vim is not installed
}

func (w *world) vim(c *client.Client) editor {
	w.T.Helper()
	if _, err := exec.LookPath("vim"); err != nil {
		w.T.Log(err)
		return editor{}
	}
	w.spawn(c, "vim", protocol.SpawnSpec{Argv: []string{"vim", "-u", "NONE", "-N", "-n", "-i", "NONE"}})
	w.shows(c, "vim", "VIM - Vi IMproved")
	return editor{w, "vim"}
}

// edit types a line, and waits until the screen contains it.
func (e editor) edit(c *client.Client, n int) {
	if e.id == "" {
		return
	}
	e.w.T.Helper()
	line := fmt.Sprintf("line %d of the text", n)
	testkit.Must(e.w.T, c.Type(e.w.ctx(), protocol.SessionID(e.id), []byte("Go"+line+"\x1b")))
	e.w.shows(c, e.id, line)
}

// A churning is a set of sessions that begin and end all the time.
type churning struct {
	over          atomic.Bool
	wg            sync.WaitGroup
	exits, pastes atomic.Int64
	mu            sync.Mutex
	errs          []error
}

// churnOn starts goroutines that start sessions one after another, and check how each ends.
func (w *world) churnOn(c *client.Client, seed uint64) *churning {
	x := &churning{}
	w.T.Cleanup(func() { x.over.Store(true); x.wg.Wait() })
	for i := range 4 {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		x.repeat(&x.exits, func(n int) error { return w.brief(c, protocol.SessionID(fmt.Sprintf("brief-%d-%d", i, n)), rnd) })
	}
	x.repeat(&x.pastes, func(n int) error { return w.pasted(c, protocol.SessionID(fmt.Sprint("paste-", n))) })
	return x
}

func (x *churning) repeat(times *atomic.Int64, f func(n int) error) {
	x.wg.Go(func() {
		for n := 0; !x.over.Load(); n++ {
			if err := f(n); err != nil {
				x.mu.Lock()
				defer x.mu.Unlock()
				x.errs = append(x.errs, fmt.Errorf("time %d: %w", n, err))
				return
			}
			times.Add(1)
		}
	})
}

// stop ends the goroutines, and returns how many brief sessions and pastes succeeded.
func (x *churning) stop(t *testing.T) (exits, pastes int64) {
	t.Helper()
	x.over.Store(true)
	x.wg.Wait()
	if err := errors.Join(x.errs...); err != nil {
		t.Error(err)
	}
	if exits, pastes = x.exits.Load(), x.pastes.Load(); exits == 0 || pastes == 0 {
		t.Errorf("%d brief sessions, %d pastes; want at least one of each", exits, pastes)
	}
	return exits, pastes
}

// brief starts a session that ends soon, by an exit or a signal, and checks the exit.
func (w *world) brief(c *client.Client, id protocol.SessionID, rnd *rand.Rand) error {
	code, how := rnd.IntN(256), "exit"
	script := fmt.Sprintf("sleep 0.%03d; exit %d", rnd.IntN(100), code)
	if code%4 == 0 {
		code, how, script = 137, "SIGKILL", fmt.Sprintf("sleep 0.%03d; kill -KILL $$", rnd.IntN(100))
	}
	if _, err := c.Spawn(w.T.Context(), client.SpawnRequest{ID: id, SpawnSpec: shell(script), EarlyExit: none}); err != nil {
		return fmt.Errorf("spawn %s: %w", id, err)
	}
	exit, err := c.Wait(w.T.Context(), id, -1)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", id, err)
	}
	if exit.ExitCode != code || (exit.Signal == "SIGKILL") != (how == "SIGKILL") {
		return fmt.Errorf("session %s with the script %q ended with %+v", id, script, exit)
	}
	if err := c.Forget(w.T.Context(), id); err != nil {
		return fmt.Errorf("forget %s: %w", id, err)
	}
	return nil
}

// pasted starts a session that receives 5 MiB, prints their checksum and exits.
func (w *world) pasted(c *client.Client, id protocol.SessionID) error {
	const size = 5 << 20
	text := strings.Repeat(fmt.Sprintf("%s has a line of the paste\n", id), size/20)[:size]
	spec := shell(fmt.Sprintf("stty raw -echo; echo ready; head -c %d | sha256sum; exit 9", size))
	s, err := c.Spawn(w.T.Context(), client.SpawnRequest{ID: id, SpawnSpec: spec, EarlyExit: none})
	if err != nil {
		return fmt.Errorf("spawn %s: %w", id, err)
	}
	a, err := c.Attach(w.T.Context(), id, client.AttachOptions{Resume: &protocol.Resume{Instance: s.Session.Instance}})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", id, err)
	}
	defer a.Detach()
	var seen []byte
	for typed := false; ; {
		m, err := a.Receive(limit)
		if err != nil {
			return fmt.Errorf("%s: after %q: %w", id, seen, err)
		}
		seen = append(seen, m.Data...)
		if m.Kind == client.Exited {
			if !bytes.HasPrefix(seen, []byte("ready\n"+sha256Hex(text))) || m.Exit.ExitCode != 9 {
				return fmt.Errorf("%s: the output is %q, the exit %+v", id, seen, m.Exit)
			}
			return c.Forget(w.T.Context(), id)
		}
		if !typed && bytes.Contains(seen, []byte("ready\n")) {
			typed = true
			if _, err := a.Write([]byte(text)); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}
	}
}
