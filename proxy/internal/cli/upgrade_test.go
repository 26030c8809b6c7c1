package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	wire "holdfast/protocol/link"
	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/link"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/fakelink"
)

// A halves is a supervisor at the end of a real link, and a counter in the place of a proxy. It records the actions
// on both, in order.
type halves struct {
	*fakelink.Supervisor
	t *testing.T

	mu       sync.Mutex
	done     []string
	state    protocol.ProcessStatus
	refuse   map[string]error // the error of an action: try, become or handoff
	becoming func()           // called instead of the usual change of state when the supervisor becomes another program
}

// errCut is the error of an action that loses its link.
var errCut = errors.New("the link is lost")

func newHalves(t *testing.T) *halves {
	h := &halves{
		Supervisor: fakelink.New(t), t: t,
		state: protocol.ProcessStatus{PID: 7, Version: "old", Protocol: protocol.VersionRange{Min: 1, Max: 1}, Instance: "life", Upgrades: 2},
	}
	h.Answer(h.answer)
	h.Listen()
	return h
}

func (h *halves) answer(st *link.Stream, m protocol.Message) {
	if _, ok := m.(*wire.Status); ok {
		h.mu.Lock()
		report := wire.StatusReport{Supervisor: h.state}
		h.mu.Unlock()
		_ = st.Send(report)
		return
	}
	up := m.(*wire.Upgrade)
	what := "become"
	if up.DryRun {
		what = "try"
	}
	if err := h.note(what); errors.Is(err, errCut) {
		h.Cut()
		return
	} else if err != nil {
		_ = st.Fail(err)
		return
	}
	if up.Program != "/new/supervisor" {
		h.t.Errorf("the requested program is %q", up.Program)
	}
	if up.DryRun {
		_ = st.Send(wire.Upgraded{Version: "new", Sessions: 5})
		return
	}
	h.mu.Lock()
	if h.becoming != nil {
		h.becoming()
	} else {
		h.state.Upgrades, h.state.Version, h.state.Sessions = 3, "new", 5
	}
	h.mu.Unlock()
	h.Cut()
}

func (h *halves) note(what string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, what)
	return h.refuse[what]
}

// upgrade returns an upgrade to programs that speak the versions ours, while the running proxy speaks other ones.
func (h *halves) upgrade(ours, proxy protocol.VersionRange) (*upgrade, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return &upgrade{
		supported: ours, program: "/new/supervisor", wait: 30 * time.Second, out: out,
		dial: func(ctx context.Context) (*link.Conn, error) {
			nc, err := h.Dial(ctx)
			if err != nil {
				return nil, err
			}
			c, _, _, err := link.Dial(nc, wire.Hello{Protocol: protocol.Supported()}, zerolog.Nop())
			return c, err
		},
		speaks: func(context.Context, bool) (*protocol.VersionRange, error) {
			if proxy == (protocol.VersionRange{}) {
				return nil, nil
			}
			return &proxy, nil
		},
		handoff: func(_ context.Context, dryRun bool) error {
			if dryRun {
				return h.note("handoff, tried")
			}
			return h.note("handoff")
		},
		agent: func(context.Context) (string, error) { return "", nil },
	}, out
}

// Supervisor and proxy are replaced in an order in which they can always understand each other. If the first one
// cannot be replaced, the second one is not replaced either.
func TestUpgrade(t *testing.T) {
	one, two, both, none := protocol.VersionRange{Min: 1, Max: 1}, protocol.VersionRange{Min: 2, Max: 2}, protocol.VersionRange{Min: 1, Max: 2}, protocol.VersionRange{}
	refused := protocol.Errorf(protocol.CodeUpgradeRefused, "it cannot read a screen")
	for _, tt := range []struct {
		name        string
		ours, proxy protocol.VersionRange
		dryRun      bool
		refuse      map[string]error
		becoming    func(*protocol.ProcessStatus)
		want        []string
		code        int
		says        []string
	}{
		{name: "all speak alike", ours: one, proxy: one, want: []string{"try", "become", "handoff"}, says: []string{"old became new, pid 7, with 5 sessions", "answered again after"}},
		{name: "the old proxy understands the new supervisor", ours: both, proxy: one, want: []string{"try", "become", "handoff"}},
		{name: "only the new proxy understands both supervisors", ours: both, proxy: protocol.VersionRange{Min: 3, Max: 3}, want: []string{"try", "handoff", "become"}},
		{name: "no common version", ours: two, proxy: one, code: sysexits.Protocol, says: []string{"nothing has changed", "2-2", "1-1"}},
		{name: "no proxy", ours: one, proxy: none, want: []string{"try", "become"}, says: []string{"proxy: none runs"}},
		{name: "tried", ours: one, proxy: one, dryRun: true, want: []string{"try", "handoff, tried"}, says: []string{"could become new with 5 sessions"}},
		{name: "tried without a proxy", ours: one, proxy: none, dryRun: true, want: []string{"try"}},
		{name: "cannot be upgraded", ours: one, proxy: one, refuse: map[string]error{"try": refused}, want: []string{"try"},
			code: sysexits.Protocol, says: []string{"nothing has changed", "cannot read a screen"}},
		{name: "dies in the trial", ours: one, proxy: one, refuse: map[string]error{"try": errCut}, want: []string{"try"},
			code: sysexits.TempFail, says: []string{"nothing has changed: the supervisor, pid 7, closed the link while it tried /new/supervisor", "try again"}},
		{name: "refused after the trial", ours: one, proxy: one, refuse: map[string]error{"become": refused}, want: []string{"try", "become"},
			code: sysexits.Protocol, says: []string{"the proxy has not changed", "continues unchanged", "cannot read a screen"}},
		{name: "the first handoff fails", ours: both, proxy: protocol.VersionRange{Min: 3, Max: 3}, want: []string{"try", "handoff"},
			refuse: map[string]error{"handoff": exitcode.New(sysexits.TempFail, "the old proxy continues to serve")}, code: sysexits.TempFail, says: []string{"the supervisor has not changed: the old proxy continues to serve"}},
		{name: "the second handoff fails", ours: one, proxy: one, want: []string{"try", "become", "handoff"},
			refuse: map[string]error{"handoff": exitcode.New(sysexits.TempFail, "the old proxy continues to serve")}, code: sysexits.TempFail, says: []string{"became new", "the old proxy continues to serve"}},
		{name: "another upgrade is in progress", ours: one, proxy: one, refuse: map[string]error{"become": protocol.Errorf(protocol.CodeUpgrading, "")},
			want: []string{"try", "become"}, code: sysexits.TempFail},
		{name: "another supervisor comes", ours: one, proxy: one, becoming: func(s *protocol.ProcessStatus) { s.Instance, s.Upgrades = "other", 0 },
			want: []string{"try", "become"}, code: sysexits.Software, says: []string{"another supervisor was started"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHalves(t)
			h.mu.Lock()
			h.refuse = tt.refuse
			if tt.becoming != nil {
				h.becoming = func() { tt.becoming(&h.state) }
			}
			h.mu.Unlock()
			u, out := h.upgrade(tt.ours, tt.proxy)
			u.dryRun = tt.dryRun
			err := u.run(testkit.Soon(t))
			if got := exitcode.Of(err); got != tt.code {
				t.Errorf("exit code %d, want %d: %v", got, tt.code, err)
			}
			text := out.String()
			if err != nil {
				text += exitcode.Text(err)
			}
			for _, want := range tt.says {
				if !strings.Contains(text, want) {
					t.Errorf("the output is %q, want %q in it", text, want)
				}
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if !reflect.DeepEqual(h.done, tt.want) {
				t.Errorf("the actions are %v, want %v", h.done, tt.want)
			}
		})
	}
}

// If the supervisor dies before it has executed the new program, the upgrade must end when another process serves its
// sessions, because that one will not execute the program. An exec keeps the process id.
func TestSupervisorDiesInUpgrade(t *testing.T) {
	h := newHalves(t)
	h.mu.Lock()
	h.becoming = func() { h.state.PID = 8 }
	h.mu.Unlock()
	one := protocol.VersionRange{Min: 1, Max: 1}
	u, _ := h.upgrade(one, one)
	err := u.run(testkit.Soon(t))
	if exitcode.Of(err) != sysexits.TempFail || !strings.Contains(exitcode.Text(err), "pid 7, died during the upgrade; old, pid 8, continues its sessions") {
		t.Errorf("got %v", err)
	}
}

// If the supervisor does not become the new program, the output names the program that it still runs.
func TestNotUpgraded(t *testing.T) {
	h := newHalves(t)
	h.mu.Lock()
	h.becoming = func() {} // it loses its links, and does not change
	h.mu.Unlock()
	one := protocol.VersionRange{Min: 1, Max: 1}
	u, _ := h.upgrade(one, one)
	u.wait = 200 * time.Millisecond
	err := u.run(testkit.Soon(t))
	if exitcode.Of(err) != sysexits.TempFail || !strings.Contains(exitcode.Text(err), "continues as old, pid 7") {
		t.Errorf("got %v", err)
	}
}

// Without a supervisor only the proxy is replaced. Without a proxy, too, no program is started.
func TestUpgradeOfOne(t *testing.T) {
	for _, tt := range []struct {
		proxy protocol.VersionRange
		want  []string
		code  int
	}{
		{proxy: protocol.VersionRange{Min: 1, Max: 1}, want: []string{"handoff"}},
		{code: sysexits.Unavailable},
	} {
		t.Run(fmt.Sprint(tt.want), func(t *testing.T) {
			h := newHalves(t)
			u, _ := h.upgrade(protocol.Supported(), tt.proxy)
			u.dial = func(context.Context) (*link.Conn, error) { return nil, fs.ErrNotExist }
			if err := u.run(testkit.Soon(t)); exitcode.Of(err) != tt.code || !reflect.DeepEqual(h.done, tt.want) {
				t.Errorf("%v; the actions are %v, want %v", err, h.done, tt.want)
			}
		})
	}
	h := newHalves(t)
	u, _ := h.upgrade(protocol.Supported(), protocol.Supported())
	u.speaks = func(context.Context, bool) (*protocol.VersionRange, error) { return nil, errors.New("no") }
	if err := u.run(testkit.Soon(t)); err == nil || len(h.done) > 0 {
		t.Errorf("%v; the actions are %v", err, h.done)
	}
}
