package hostupgrade

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/shared/testkit"
)

// A host has an Upgrader. What runs there is this test.
type host struct {
	*Upgrader
	t         *testing.T
	base      string // the permitted directory
	permitted []string
	runs      atomic.Int64 // number of runs of "proxy upgrade"
	log       strings.Builder
	sessions  []protocol.SessionInfo
	isIdle    bool
	// ends has the sessions that are forgotten as soon as the first look has shown them. hidden ones are absent without
	// an event.
	ends, hidden []protocol.SessionInfo
	ended        func(protocol.SessionID, protocol.Instance)
	looks        func() // called at each look; it may be nil
	ghosts       int    // number of looks that show a proxy that has ended since
}

func newHost(t *testing.T) *host {
	if _, err := programOf(0); err != nil {
		t.Skip("only Linux tells the program of a process")
	}
	h := &host{t: t, base: testkit.Dir(t), sessions: []protocol.SessionInfo{{ID: "s", Instance: "1", State: protocol.StateRunning}}}
	h.permitted = []string{h.base}
	h.Upgrader = New(Options{
		Dir: filepath.Join(t.TempDir(), "before"), Log: zerolog.New(&h.log),
		Permitted: func() ([]string, error) { return h.permitted, nil },
		Look: func(context.Context) (Running, error) {
			if h.looks != nil {
				h.looks()
			}
			if h.isIdle {
				return Running{}, ErrIdle
			}
			self := Process{os.Getpid(), "v1"}
			if h.ghosts > 0 {
				h.ghosts--
				return Running{self, Process{1 << 30, "v0"}, nil}, nil
			}
			sessions := slices.Concat(h.sessions, h.ends, h.hidden)
			for _, s := range h.ends {
				h.ended(s.ID, s.Instance)
			}
			h.ends, h.hidden = nil, nil
			return Running{self, self, sessions}, nil
		},
		Watch: func(_ context.Context, ended func(protocol.SessionID, protocol.Instance)) error {
			h.ended = ended
			return nil
		},
		Agent: func(context.Context) (Process, error) { return Process{os.Getpid(), "v1"}, nil },
		Command: func(ctx context.Context, dir, command string, args ...string) (*exec.Cmd, error) {
			h.runs.Add(1)
			return exec.CommandContext(ctx, filepath.Join(dir, "proxy"), append([]string{command}, args...)...), nil
		},
	})
	return h
}

// release makes a directory with programs, of which proxy is a script, and returns its path.
func (h *host) release(name, script string) string {
	h.t.Helper()
	dir := filepath.Join(h.base, name)
	testkit.Must(h.t, os.Mkdir(dir, 0o700))
	for program, text := range map[string]string{"proxy": `[ "$1" = --version ] && exec echo proxy version v2; ` + script, "supervisor": "exit 1"} {
		testkit.Must(h.t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	return dir
}

// send sends a request, and returns the connection.
func (h *host) send(m gate.Upgrade) net.Conn {
	h.t.Helper()
	here, there := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = h.Serve(context.Background(), there, m)
		_ = there.Close()
	}()
	h.t.Cleanup(func() { _ = here.Close(); <-served })
	return here
}

// ask sends a request, and returns its result and the steps.
func (h *host) ask(m gate.Upgrade) (result gate.Upgraded, steps []string, err error) {
	h.t.Helper()
	conn := h.send(m)
	for {
		got, err := gate.Read(conn, gate.MaxFirst)
		switch got := got.(type) {
		case *gate.UpgradeStep:
			steps = append(steps, got.Text)
		case *gate.Upgraded:
			return *got, steps, nil
		default:
			return result, steps, err
		}
	}
}

func request(action gate.UpgradeAction, from string) gate.Upgrade {
	return gate.Upgrade{ID: "r", Action: action, From: from, LimitMS: time.Hour.Milliseconds()}
}

func TestRefused(t *testing.T) {
	h := newHost(t)
	good := h.release("good", "exit 0")
	outside := t.TempDir()
	testkit.Must(t, os.Symlink(outside, filepath.Join(h.base, "link")))
	for _, tt := range []struct {
		name   string
		m      gate.Upgrade
		code   gate.Refusal
		permit []string
	}{
		{"no directory is permitted", request(gate.UpgradeApply, good), gate.RefusedUnauthorized, nil},
		{"another directory", request(gate.UpgradeApply, outside), gate.RefusedUnauthorized, h.permitted},
		{"the directory above", request(gate.UpgradeApply, filepath.Dir(h.base)), gate.RefusedUnauthorized, h.permitted},
		{"a path with dots", request(gate.UpgradeApply, h.base+"/../"), gate.RefusedUnauthorized, h.permitted},
		{"a name with the same beginning", request(gate.UpgradeApply, h.base+"2"), gate.RefusedUnauthorized, h.permitted},
		{"a link out of it", request(gate.UpgradeApply, h.base+"/link"), gate.RefusedUnauthorized, h.permitted},
		{"a directory that is missing", request(gate.UpgradeApply, h.base+"/none"), gate.RefusedUnauthorized, h.permitted},
		{"a permitted directory that is missing", request(gate.UpgradeApply, good), gate.RefusedUnauthorized, []string{h.base + "/none"}},
		{"a return", request(gate.UpgradeReturn, good), gate.RefusedUnauthorized, nil},
		{"a relative path", request(gate.UpgradeApply, "good"), gate.RefusedInvalid, h.permitted},
		{"an unknown action", request("sudo", good), gate.RefusedInvalid, h.permitted},
		{"no id", gate.Upgrade{Action: gate.UpgradeApply, From: good, LimitMS: 1}, gate.RefusedInvalid, h.permitted},
		{"no limit", gate.Upgrade{ID: "r", Action: gate.UpgradeApply, From: good}, gate.RefusedInvalid, h.permitted},
		{"a limit that overflows", gate.Upgrade{ID: "r", Action: gate.UpgradeApply, From: good, LimitMS: 1 << 62}, gate.RefusedInvalid, h.permitted},
	} {
		h.permitted = tt.permit
		h.log.Reset()
		result, _, err := h.ask(tt.m)
		var refused *gate.Refused
		if !errors.As(err, &refused) || refused.Code != tt.code || !strings.Contains(h.log.String(), `"security":true`) {
			t.Errorf("%s: %+v, %v, want %s, and the log has %s", tt.name, result, err, tt.code, h.log.String())
		}
	}
	if n := h.runs.Load(); n != 0 {
		t.Errorf("%d programs were run", n)
	}
}

func TestResults(t *testing.T) {
	h := newHost(t)
	broken := h.release("broken", `echo '{"text":"it begins"}'; echo it is broken >&2; exit 1`)
	silent := h.release("silent", "exit 0")
	absent := filepath.Join(h.base, "absent")
	testkit.Must(t, os.Mkdir(absent, 0o700))
	hangs := request(gate.UpgradeApply, h.release("hangs", "exec sleep 1000"))
	hangs.LimitMS = 100
	short := request(gate.UpgradeApply, silent)
	short.LimitMS = 300
	for _, tt := range []struct {
		name  string
		m     gate.Upgrade
		state gate.UpgradeState
		says  string
		runs  int64
	}{
		{"a check", request(gate.UpgradeCheck, broken), gate.UpgradeReady, "", 0},
		{"a directory without programs", request(gate.UpgradeCheck, absent), gate.UpgradeFailed, "no such file", 0},
		{"a trial", request(gate.UpgradeTry, broken), gate.UpgradeFailed, "it is broken", 1},
		{"a trial that succeeds", request(gate.UpgradeTry, silent), gate.UpgradeReady, "", 1},
		{"a return before an upgrade", request(gate.UpgradeReturn, silent), gate.UpgradeReturned, "not upgraded by this rollout", 0},
		{"an upgrade that fails", request(gate.UpgradeApply, broken), gate.UpgradeReturned, "it is broken", 1},
		{"one that changes nothing", short, gate.UpgradeReturned, "", 1}, // it has no effect within the limit; the programs from before run, so the return runs none
		{"one that hangs", hangs, gate.UpgradeReturned, "has not ended in time", 1},
		{"one that changes nothing, again", short, gate.UpgradeReturned, "", 1},
		{"the same again", short, gate.UpgradeReturned, "", 0},
		{"a return", request(gate.UpgradeReturn, silent), gate.UpgradeReturned, "", 0},
		{"a return from programs that are gone", request(gate.UpgradeReturn, h.base+"/none"), gate.UpgradeReturned, "", 0},
	} {
		h.runs.Store(0)
		result, steps, err := h.ask(tt.m)
		if err != nil || result.State != tt.state || !strings.Contains(result.Error, tt.says) || len(steps) == 0 || h.runs.Load() != tt.runs {
			t.Errorf("%s: %+v, %q, %v after %d runs, want %s, %q and %d runs", tt.name, result, steps, err, h.runs.Load(), tt.state, tt.says, tt.runs)
		}
		if tt.state != gate.UpgradeFailed && result.Proxy != "v1" {
			t.Errorf("%s: the proxy is %q", tt.name, result.Proxy)
		}
	}
	h.isIdle = true
	if result, _, err := h.ask(request(gate.UpgradeCheck, silent)); err != nil || result.State != gate.UpgradeIdle {
		t.Errorf("on an idle host: %+v, %v", result, err)
	}
}

// A host does not refuse an upgrade because its proxy, or the link with the supervisor, is being replaced at that moment.
func TestLookAgain(t *testing.T) {
	h := newHost(t)
	h.ghosts = 1
	if result, _, err := h.ask(request(gate.UpgradeCheck, h.release("good", "exit 0"))); err != nil || result.State != gate.UpgradeReady || result.Proxy != "v1" {
		t.Errorf("%+v, %v", result, err)
	}
}

// The work ends with an error if the proxy accepts connections and does not answer, so that the agent can begin another
// upgrade.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		u := New(Options{
			Log:   zerolog.Nop(),
			Watch: func(ctx context.Context, _ func(protocol.SessionID, protocol.Instance)) error { return hangs(ctx) },
			Look:  func(ctx context.Context) (Running, error) { return Running{}, hangs(ctx) },
		})
		begin := time.Now()
		for _, action := range []gate.UpgradeAction{gate.UpgradeCheck, gate.UpgradeApply} {
			result := u.work(t.Context(), &job{request: request(action, "/new"), changed: make(chan struct{})}, "/new")
			if result.State != gate.UpgradeFailed || !strings.Contains(result.Error, context.DeadlineExceeded.Error()) {
				t.Errorf("%s: %+v", action, result)
			}
		}
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A session that ends and is forgotten during the work is not missing. A session that is absent without a report of its
// end is.
func TestSessionEnds(t *testing.T) {
	h := newHost(t)
	broken := h.release("broken", "exit 1")
	m := request(gate.UpgradeApply, broken) // the return waits for the sessions from before
	session := protocol.SessionInfo{ID: "e", Instance: "1", State: protocol.StateRunning}
	h.ends = []protocol.SessionInfo{session}
	work := func(ctx context.Context) gate.Upgraded {
		return h.work(ctx, &job{request: m, changed: make(chan struct{})}, broken)
	}
	if result := work(testkit.Soon(t)); result.State != gate.UpgradeReturned {
		t.Errorf("with a session that has ended: %+v", result)
	}
	h.hidden = []protocol.SessionInfo{session}
	ctx, cancel := context.WithCancel(testkit.Soon(t))
	defer cancel()
	n := 0
	h.looks = func() {
		if n++; n == 3 { // the first look shows the session, the second one shows that the programs have not changed
			cancel()
		}
	}
	result := work(ctx)
	if result.State != gate.UpgradeFailed || !strings.Contains(result.Error, "session e is missing") {
		t.Errorf("with a session that is absent: %+v", result)
	}
}

// The work continues if the connection of the client ends. The same request is then answered with its result,
// and another one is refused until the work is done.
func TestAgain(t *testing.T) {
	h := newHost(t)
	slow := h.release("slow", `until [ -e "$(dirname "$0")/go" ]; do sleep 0.05; done; echo it is over >&2; exit 1`)
	m := request(gate.UpgradeApply, slow)
	conn := h.send(m)
	if _, err := gate.Read(conn, gate.MaxFirst); err != nil { // the first step
		t.Fatal(err)
	}
	_ = conn.Close()
	var refused *gate.Refused
	if _, _, err := h.ask(request(gate.UpgradeReturn, slow)); !errors.As(err, &refused) || refused.Code != gate.RefusedBusy {
		t.Errorf("another request during the work: %v", err)
	}
	again := h.send(m)
	if _, err := gate.Read(again, gate.MaxFirst); err != nil {
		t.Fatal(err)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(slow, "go"), nil, 0o600))
	for {
		got, err := gate.Read(again, gate.MaxFirst)
		testkit.Must(t, err)
		if result, ok := got.(*gate.Upgraded); ok {
			if result.State != gate.UpgradeReturned || result.Error != "it is over" || h.runs.Load() != 1 {
				t.Errorf("%+v after %d runs", result, h.runs.Load())
			}
			return
		}
	}
}

func TestMissing(t *testing.T) {
	session := func(id, instance string, state protocol.State) protocol.SessionInfo {
		return protocol.SessionInfo{ID: protocol.SessionID(id), Instance: protocol.Instance(instance), State: state}
	}
	before := []protocol.SessionInfo{session("a", "1", protocol.StateRunning), session("b", "1", protocol.StateExited)}
	for _, tt := range []struct {
		name string
		now  []protocol.SessionInfo
		says string
	}{
		{"all", []protocol.SessionInfo{before[0], before[1], session("c", "1", protocol.StateRunning)}, ""},
		{"one has ended, and a record is deleted", []protocol.SessionInfo{session("a", "1", protocol.StateExited)}, ""},
		{"none", nil, "session a is missing"},
		{"another instance", []protocol.SessionInfo{session("a", "2", protocol.StateRunning)}, "session a is another instance"},
		{"lost", []protocol.SessionInfo{session("a", "1", protocol.StateLost)}, "session a is lost"},
	} {
		err := missing(before, tt.now)
		if text := testText(err); tt.says == "" && err != nil || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.says)
		}
	}
}

func testText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestTake(t *testing.T) {
	var done outcome
	for line, text := range map[string]string{
		`{"step":"became","text":"supervisor became v2","stall_ms":12.5}`:                  "supervisor became v2",
		`{"step":"linked","at_ms":1,"pid":5}`:                                              "",
		`{"step":"moved","connections":7,"closed":1,"stall_median_ms":2,"stall_max_ms":4}`: "proxy: moved 7 connections, with a pause of 4.0 ms at most",
		`{"step":"failed","error":"no"}`:                                                   "proxy: no",
		`{"step":"serving","version":"v2"}`:                                                "proxy: v2 serves",
		"proxy v1 serves as pid 3\n":                                                       "proxy v1 serves as pid 3\n",
	} {
		if got := done.take([]byte(line)); got != text {
			t.Errorf("%s is %q, want %q", line, got, text)
		}
	}
	if done != (outcome{12.5, 7, 1}) {
		t.Errorf("the outcome is %+v", done)
	}
}
