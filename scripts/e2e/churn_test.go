package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// moreThreads is the number of threads by which a process may grow, because Go keeps threads that it needed
// once.
const moreThreads = 6

// moreRSS is the memory in KiB by which a process may grow. The race detector keeps several times as much.
func moreRSS() int {
	if os.Getenv("HOLDFAST_E2E_RACE") == "1" {
		return 128 << 10
	}
	return 16 << 10
}

// kinds are the roles of the processes that usages measures.
var kinds = []string{"keeper", "supervisor", "proxy"}

// settled waits until no process has more resources than before, apart from threads and heap that Go keeps.
// It fails the test if this does not happen.
func (w *world) settled(before map[string]usage) {
	w.T.Helper()
	for _, name := range kinds {
		p, was := w.Only(name), before[name]
		var is usage
		ok := func() bool {
			is = usageOf(p.PID)
			return is.FDs <= was.FDs && is.Memfds <= was.Memfds && is.PTYs <= was.PTYs && is.Sockets <= was.Sockets && is.Recordings <= was.Recordings &&
				is.Mapped <= was.Mapped && is.Children <= was.Children &&
				is.Threads <= was.Threads+moreThreads && is.RSS <= was.RSS+moreRSS()
		}
		if !eventually(ok) {
			w.T.Errorf("the %s had %+v; now it has %+v: %v", name, was, is, fds(p.PID))
		}
		w.T.Logf("%s: %+v, then %+v", name, was, is)
	}
}

// usages returns the usage of each process by role.
func (w *world) usages() map[string]usage {
	w.T.Helper()
	all := map[string]usage{}
	for _, name := range kinds {
		all[name] = usageOf(w.Only(name).PID)
	}
	return all
}

// Many sessions must leave no resource behind: 300 sessions, and 1,000 in the long mode.
func TestChurn(t *testing.T) {
	t.Parallel()
	warm, sessions := 100, 300
	if isLong {
		warm, sessions = 200, 1000
	}
	w := newWorld(t)
	c := w.dial(client.Options{})
	events, err := c.Events(w.ctx())
	testkit.Must(t, err)
	w.churn(c, "warm", warm)
	before, names := w.usages(), files(w.Dir)
	begun := events
	w.churn(c, "s", sessions)
	w.settled(before)
	isStore := func(name string) bool { return name == "sessions" } // it is made for the first session that lives long enough
	if now := slices.DeleteFunc(files(w.Dir), isStore); !slices.Equal(now, slices.DeleteFunc(names, isStore)) {
		t.Errorf("the directory contained %q; now it contains %q", names, now)
	}
	left := func() []string { // without the clock of the store, which is written if the test lasts long enough
		return slices.DeleteFunc(files(filepath.Join(w.Dir, "sessions")), func(name string) bool { return name == "clock" })
	}
	if !eventually(func() bool { return len(left()) == 0 }) {
		t.Errorf("files of forgotten sessions are left: %q", left())
	}
	if list, err := c.List(w.ctx(), ""); err != nil || len(list) != 0 {
		t.Errorf("%d sessions are listed, %v; want none", len(list), err)
	}
	_ = begun.Close()
}

// churn starts, waits for and forgets n sessions, 8 at a time. A quarter of them has a viewer and is
// terminated, a quarter is killed by a signal, and the others exit.
func (w *world) churn(c *client.Client, prefix string, n int) {
	w.T.Helper()
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				if err := w.oneLife(c, protocol.SessionID(fmt.Sprint(prefix, i)), i); err != nil {
					w.T.Errorf("session %d: %v", i, err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	wg.Wait()
	if w.T.Failed() {
		w.T.FailNow()
	}
}

func (w *world) oneLife(c *client.Client, id protocol.SessionID, i int) error {
	ctx := w.T.Context()
	spec := []protocol.SpawnSpec{
		{Argv: []string{"true"}}, shell("echo some words; exit 3"), {Argv: []string{"cat"}}, shell("kill -9 $$"),
	}[i%4]
	want := []int{0, 3, 129, 137}[i%4]
	if _, err := c.Spawn(ctx, client.SpawnRequest{ID: id, SpawnSpec: spec, EarlyExit: none}); err != nil {
		return err
	}
	if i%4 == 2 {
		a, err := c.Attach(ctx, id, client.AttachOptions{})
		if err != nil {
			return err
		}
		if err := c.Terminate(ctx, id, client.End{}); err != nil {
			return err
		}
		for err = nil; err == nil; {
			_, err = a.Receive(limit)
		}
		if exit := a.Exit(); exit == nil || exit.ExitCode != want {
			return fmt.Errorf("the viewer received the exit %+v, %w", exit, err)
		}
		if err := a.Detach(); err != nil {
			return err
		}
	}
	exit, err := c.Wait(ctx, id, limit)
	if err != nil || exit.ExitCode != want {
		return fmt.Errorf("exit %+v, want code %d: %w", exit, want, err)
	}
	return c.Forget(ctx, id)
}

// If a session is forgotten right after its end, its viewers must still receive all output and the exit.
// demand: M9
func TestForgottenUnderViewer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	for i := range 30 {
		id := fmt.Sprint("s", i)
		w.spawn(c, id, shell("stty -echo; echo ready; read x; seq 1 5000; echo the end; exit 7"))
		v := w.attach(c, id, client.AttachOptions{})
		v.until("ready")
		v.say("\n")
		if _, err := c.Wait(w.ctx(), protocol.SessionID(id), limit); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, c.Forget(w.ctx(), protocol.SessionID(id)))
		v.until("the end")
		if m := v.last(); m.Kind != client.Exited || m.Exit.ExitCode != 7 {
			t.Fatalf("round %d: %+v", i, m)
		}
	}
}
