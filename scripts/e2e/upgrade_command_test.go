package e2e

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// One command must replace both programs while clients are connected, by the next release and by the one
// before. Two commands must do the same in either order.
// demand: S9, S10
func TestProxyUpgrade(t *testing.T) {
	t.Parallel()
	h := newHeld(t)
	one, other := releases(t)
	h.Must("proxy", "new", "-d", "--id", "ended", "--", "cat")
	h.Must("proxy", "kill", "ended")
	for _, to := range []release{other, one} {
		old, was := h.Only("proxy"), h.is
		r := h.runFrom(to.bin, "proxy", "upgrade", "--dry-run")
		for _, says := range []string{
			fmt.Sprintf("supervisor %s, pid %d, could become %s with %d sessions", was.Version, was.PID, to.version, len(h.children)),
			fmt.Sprintf("proxy %s could take over from pid %d", to.version, old.PID),
		} {
			if r.Code != 0 || !strings.Contains(r.Out, says) {
				t.Errorf("dry run: %v, want %q", r, says)
			}
		}
		h.unharmed(t, 0)
		if now := h.Only("proxy"); now != old {
			t.Fatalf("the dry run replaced the proxy %v by %v", old, now)
		}

		r = h.runFrom(to.bin, "proxy", "upgrade")
		for _, says := range []string{
			fmt.Sprintf("supervisor %s became %s, pid %d, with %d sessions", was.Version, to.version, was.PID, len(h.children)),
			fmt.Sprintf("took over from pid %d", old.PID),
		} {
			if r.Code != 0 || !strings.Contains(r.Out, says) {
				t.Errorf("upgrade: %v, want %q", r, says)
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
		t.Fatalf("handoff to %s: %v", of.version, r)
	}
	h.Gone(old)
}

// halves fails the test unless supervisor and proxy are of the given releases, and nothing else has changed.
func (h *held) halves(t *testing.T, supervisor, proxy release) {
	t.Helper()
	now := h.supervisor(h.c)
	if now.Version != supervisor.version {
		t.Fatalf("the supervisor is of release %s, want %s", now.Version, supervisor.version)
	}
	if now.Version != h.is.Version {
		h.upgraded(h.is, now, supervisor)
	}
	h.is = now
	h.unharmed(t, 0)
	st, err := h.c.Status(h.ctx())
	if err != nil || st.Proxy.Version != proxy.version || st.Proxy.PID != h.Only("proxy").PID {
		t.Fatalf("the proxy is %+v, want release %s, %v", st.Proxy, proxy.version, err)
	}
}

// Upgrades must not change the screen. A viewer that stays attached, a viewer that attaches later, and
// xterm.js that reads all output must show the same.
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
			testkit.Must(t, err)
			more := fmt.Sprintf("8m<%d é>\r\n\x1b[38;5;20", i) // it ends one escape sequence, and begins another
			testkit.Must(t, c.Type(w.ctx(), protocol.SessionID(id), []byte(more)))
			var shown *protocol.ScreenContent
			if !eventually(func() bool {
				shown, err = c.Screen(w.ctx(), protocol.SessionID(id), client.ScreenOptions{Format: protocol.ScreenCells})
				return err == nil && shown.Offset == before.OutputOffset+uint64(len(more))
			}) {
				t.Fatalf("the screen of %s is %+v, %v", id, shown, err)
			}
			printed, from, err := c.Output(w.ctx(), protocol.SessionID(id))
			if err != nil || from != 0 {
				t.Fatalf("the output of %s begins at offset %d, %v; want 0", id, from, err)
			}
			whole.new(80, 24)
			whole.write(printed)
			if diff := whole.visible().differs(shown); diff != "" {
				t.Errorf("upgrade %d: xterm.js differs from the screen of %s: %s", i, id, diff)
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
