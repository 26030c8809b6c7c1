package e2e

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
)

// One command replaces both halves under their clients, by the next release and
// back by the one before; and so do two commands, whichever half is first.
// demand: S9, S10
func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	one, other := releases(t)
	for _, to := range []release{other, one} {
		old, was := h.Only("proxy"), h.is
		r := h.runFrom(to.bin, "proxy", "upgrade", "--dry-run")
		for _, says := range []string{
			fmt.Sprintf("supervisor %s, pid %d, could become %s with %d sessions", was.Version, was.PID, to.version, len(h.children)),
			fmt.Sprintf("proxy %s could take over from pid %d", to.version, old.PID),
		} {
			if r.Code != 0 || !strings.Contains(r.Out, says) {
				t.Errorf("tried: %v, and not %q", r, says)
			}
		}
		h.unharmed(t, 0)
		if now := h.Only("proxy"); now != old {
			t.Fatalf("the proxy was %v, and is %v", old, now)
		}

		r = h.runFrom(to.bin, "proxy", "upgrade")
		for _, says := range []string{
			fmt.Sprintf("supervisor %s became %s, pid %d, with %d sessions", was.Version, to.version, was.PID, len(h.children)),
			fmt.Sprintf("took over from pid %d", old.PID),
		} {
			if r.Code != 0 || !strings.Contains(r.Out, says) {
				t.Errorf("upgraded: %v, and not %q", r, says)
			}
		}
		h.halves(t, to, to)
	}

	h.proxyFrom(t, other)
	h.halves(t, one, other)
	h.upgrade(h.c, other)
	h.halves(t, other, other)
	h.upgrade(h.c, one)
	h.halves(t, one, other)
	h.proxyFrom(t, one)
	h.halves(t, one, one)
	h.finish(t)
}

func (h *held) proxyFrom(t *testing.T, of release) {
	t.Helper()
	old := h.Only("proxy")
	if r := h.runFrom(of.bin, "proxy", "--handoff"); r.Code != 0 {
		t.Fatalf("a handoff to %s: %v", of.version, r)
	}
	h.Gone(old)
}

// halves says what both are now, and fails the test unless they are, and all else is
// as it was.
func (h *held) halves(t *testing.T, supervisor, proxy release) {
	t.Helper()
	now := h.supervisor(h.c)
	if now.Version != supervisor.version {
		t.Fatalf("the supervisor is of %s, and not of %s", now.Version, supervisor.version)
	}
	if now.Version != h.is.Version {
		h.upgraded(h.is, now, supervisor)
	}
	h.is = now
	h.unharmed(t, 0)
	st, err := h.c.Status(h.ctx())
	if err != nil || st.Proxy.Version != proxy.version || st.Proxy.PID != h.Only("proxy").PID {
		t.Fatalf("the proxy is %+v, and not of %s, %v", st.Proxy, proxy.version, err)
	}
}

// What is shown goes on through upgrades as if there had been none: who looks
// all the time, who comes later, and the real terminal of most clients that is
// given all that was printed, see the same.
// demand: S10
func TestScreensThroughUpgrades(t *testing.T) {
	whole, large, small := newXterm(t), newXterm(t), newXterm(t)
	one, other := releases(t)
	w := newWorld(t)
	w.Bin = one.bin
	c := w.dial(client.Options{})
	pictures := w.pictures(c)
	vim := w.vim(c)
	if vim.id == "" {
		t.Skip("no vim")
	}
	windows := []*window{w.window(c, vim.id, large, 80, 24), w.window(c, vim.id, small, 60, 20)}
	for i, to := range []release{other, one, other, one} {
		w.upgrade(c, to)
		for _, id := range pictures {
			before, err := c.SessionInfo(w.ctx(), protocol.SessionID(id))
			if err != nil {
				t.Fatal(err)
			}
			more := fmt.Sprintf("8m<%d é>\r\n\x1b[38;5;20", i) // it ends a sequence, and begins one
			if err := c.Type(w.ctx(), protocol.SessionID(id), []byte(more)); err != nil {
				t.Fatal(err)
			}
			var shown *protocol.ScreenContent
			if !eventually(func() bool {
				shown, err = c.Screen(w.ctx(), protocol.SessionID(id), client.ScreenOptions{Format: protocol.ScreenCells})
				return err == nil && shown.Offset == before.OutputOffset+uint64(len(more))
			}) {
				t.Fatalf("%s: it shows %+v, %v", id, shown, err)
			}
			printed, from, err := c.Output(w.ctx(), protocol.SessionID(id))
			if err != nil || from != 0 {
				t.Fatalf("%s: its output begins at %d, %v", id, from, err)
			}
			whole.new(80, 24)
			whole.write(printed)
			if diff := whole.visible().differs(shown); diff != "" {
				t.Errorf("upgrade %d: xterm.js shows something else than %s: %s", i, id, diff)
			}
		}
		vim.edit(c, i)
		w.quiet(c, vim.id)
		for _, v := range windows {
			v.same(c, vim.id)
		}
		w.window(c, vim.id, whole, 80, 24).same(c, vim.id)
	}
}
