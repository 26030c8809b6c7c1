package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// step is one line of proxy --handoff --json.
type step struct {
	Step        string
	PID         int
	Sessions    int
	Skipped     int
	Connections int
	StallMaxMS  float64 `json:"stall_max_ms"`
	Error, Code string
}

func steps(t *testing.T, out string) (all []step, names []string) {
	t.Helper()
	for line := range strings.Lines(out) {
		var s step
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all, names = append(all, s), append(names, s.Step)
	}
	return all, names
}

// Tests the steps that a handoff reports, and a dry run.
// demand: S9
func TestHandoffCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	old := w.Only("proxy")
	if out := w.Must("proxy", "--handoff", "--dry-run"); !strings.Contains(out, fmt.Sprintf("could take over from pid %d", old.PID)) {
		t.Errorf("dry run: %q", out)
	}
	all, names := steps(t, w.Must("proxy", "--handoff", "--dry-run", "--json"))
	if got := strings.Join(names, " "); got != "linked offered compared looked" || all[1].PID != old.PID || all[2].Sessions != 1 {
		t.Errorf("dry run: %+v", all)
	}
	if now := w.Only("proxy"); now != old || c.ProxyPID() != old.PID {
		t.Fatalf("the dry run replaced the proxy %v by %v", old, now)
	}
	v.ask("nothing has happened\n")

	all, names = steps(t, w.Must("proxy", "--handoff", "--json"))
	now := w.Only("proxy")
	if got := strings.Join(names, " "); got != "linked offered compared moved serving" {
		t.Fatalf("the steps are %s, want linked offered compared moved serving", got)
	}
	if moved := all[3]; moved.Connections == 0 || moved.StallMaxMS == 0 || all[4].PID != now.PID || now == old {
		t.Errorf("the steps are %+v; process %d serves", all, now.PID)
	}
	v.ask("and goes on\n")

	w.Env = append(w.Env, "HOLDFAST_LOG_LEVEL=loud")
	r := w.Run("proxy", "--handoff", "--json")
	if r.Code == 0 || !strings.Contains(r.Errout, "log_level") {
		t.Errorf("handoff with an invalid setting: %v, want an error that names log_level", r)
	}
	for _, args := range [][]string{
		{"--timeout", "0s"}, {"--timeout", "1h"}, {"--verify", "some"}, {"--from-dir", "/nowhere"}, {"--foreground", "--json"},
	} {
		if r := w.Run("proxy", append([]string{"--handoff"}, args...)...); r.Code != 64 {
			t.Errorf("handoff %v: %v, want exit 64", args, r)
		}
	}
	if left, _ := filepath.Glob(w.Path("proxy.handoff-*")); len(left) > 0 {
		t.Errorf("the handoff left files behind: %v", left)
	}
}

// A handoff must compare a sample of the sessions if there are many. It compares all sessions if the command
// says so.
func TestHandoffVerifies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "HOLDFAST_SPAWN_RATE=1000")
	c := w.dial(client.Options{})
	const sample, count = 64, 70
	for i := range count {
		w.spawn(c, fmt.Sprint("s", i), protocol.SpawnSpec{Argv: []string{"sleep", "1000"}})
	}
	for _, tt := range []struct {
		flag              string
		sessions, skipped int
	}{{"--verify=sample", sample, count - sample}, {"--verify=all", count, 0}} {
		all, _ := steps(t, w.Must("proxy", "--handoff", "--json", tt.flag))
		if got := all[2]; got.Step != "compared" || got.Sessions != tt.sessions || got.Skipped != tt.skipped {
			t.Errorf("%s: %+v", tt.flag, got)
		}
	}
}

// While a handoff is in progress, another one must be refused.
func TestTwoHandoffs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	v := w.echo(w.dial(client.Options{}), "s")
	old := w.Only("proxy")
	good := w.Env
	hang := func() *daemon {
		w.Env = append(good[:len(good):len(good)], "HOLDFAST_FAULT=taken=hang")
		defer func() { w.Env = good }()
		return w.Start(w.Command("proxy", "--handoff", "--timeout", "5s"))
	}
	hanging := hang()
	testkit.Eventually(t, limit, func() bool { return len(w.Running("proxy")) == 2 }, "the first handoff has begun")
	testkit.Eventually(t, limit, func() bool {
		select {
		case <-hanging.Ended: // it was refused, because the try before this one was faster
			hanging = hang()
		default:
		}
		r := w.Run("proxy", "--handoff", "--dry-run")
		return r.Code == 75 && strings.Contains(r.Errout, "another handoff is under way")
	}, "the second handoff is refused")
	hanging.Wait(t)
	if hanging.Code == 0 {
		t.Error("the handoff that hangs has succeeded")
	}
	if now := w.Only("proxy"); now != old {
		t.Errorf("the proxy was %v; now it is %v", old, now)
	}
	v.ask("nothing has happened\n")
	w.Must("proxy", "--handoff")
}

// The next proxy must accept the origins of pages, a request of which the old proxy has read a half, and a
// ticket that the old proxy issued.
// demand: S9
func TestRequestsMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, _ := w.webProxy("--web-origin", "https://pages.example")
	c := w.connect(client.Options{Name: "e2e"})
	w.echoAlone(c, "s")
	for range 3 {
		ticket, err := c.Ticket(w.ctx(), "s")
		testkit.Must(t, err)
		nc, err := net.Dial("tcp", address)
		testkit.Must(t, err)
		request := fmt.Sprintf("GET /v1/sessions/s/raw?ticket=%s HTTP/1.1\r\nHost: %s\r\nOrigin: https://pages.example\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", ticket, address)
		if _, err := nc.Write([]byte(request[:len(request)/2])); err != nil {
			t.Fatal(err)
		}
		w.handOff()
		if _, err := nc.Write([]byte(request[len(request)/2:])); err != nil {
			t.Fatal(err)
		}
		_ = nc.SetReadDeadline(time.Now().Add(limit))
		answer, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("the answer to the request is %+v, %v; want 101", answer, err)
		}
		_ = nc.Close()
	}
}

// The service manager must be told the new main process before the old one has ended, and the new proxy must
// log to the standard error of the handoff command.
func TestHandoffUnderServiceManager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.Path("notify"), Net: "unixgram"})
	testkit.Must(t, err)
	defer manager.Close()
	told := func() (pid int) {
		t.Helper()
		buf := make([]byte, 1<<10)
		_ = manager.SetReadDeadline(time.Now().Add(limit))
		n, err := manager.Read(buf)
		testkit.Must(t, err)
		if _, err := fmt.Sscanf(string(buf[:n]), "READY=1\nMAINPID=%d", &pid); err != nil {
			t.Fatalf("the notification is %q: %v", buf[:n], err)
		}
		return pid
	}
	w.Env = append(w.Env, "NOTIFY_SOCKET="+manager.LocalAddr().String())
	first := w.Start(w.Command("proxy", "serve"))
	if pid := told(); pid != first.PID {
		t.Errorf("the notification names process %d, want %d", pid, first.PID)
	}
	v := w.echo(w.connect(client.Options{Name: "e2e"}), "s")
	log, err := os.Create(w.Path("reload.log"))
	testkit.Must(t, err)
	defer log.Close()
	reload := w.Command("proxy", "--handoff")
	reload.Stderr = log
	testkit.Must(t, reload.Run())
	now := told()
	first.Wait(t)
	if first.Code != 0 || now == first.PID || w.Only("proxy").PID != now {
		t.Errorf("the first proxy ended with %d; the notification names process %d", first.Code, now)
	}
	if b, _ := os.ReadFile(log.Name()); !strings.Contains(string(b), "proxy serves") {
		t.Errorf("the log of the new proxy: %q", b)
	}
	v.ask("and goes on\n")
}

// If a connection cannot be frozen, because a request on it cannot be repeated, the proxy must ask its client
// to reconnect, in the way of the transport. All other connections must be moved without a long pause.
func TestHandoffTellsWhoCannotMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.doors()
	v := w.echo(d.c, "s")
	watched := api.Spawn{EarlyExitMS: new(int64(20_000)), SpawnSpec: shell("exec sleep 1000")} // without a token the request cannot be repeated
	var restless []*peer
	for _, by := range []way{framed, webTCP} {
		p, err := d.greeted(by)
		testkit.Must(t, err)
		t.Cleanup(func() { _ = p.Close() })
		testkit.Must(t, p.send(watched))
		restless = append(restless, p)
	}
	testkit.Eventually(t, limit, func() bool {
		all, err := d.c.List(w.ctx(), "")
		return err == nil && len(all) == 3
	}, "the spawned sessions run")
	out := w.Must("proxy", "--handoff")
	if !strings.Contains(out, "2 asked to reconnect") {
		t.Errorf("the handoff printed %q, want 2 asked to reconnect", out)
	}
	for i, p := range restless {
		m, err := p.receive()
		if m, ok := m.(*api.Goaway); !ok || m.Reason != "handoff" {
			t.Errorf("connection %d received %+v, %v; want goaway", i, m, err)
		}
		if _, err := p.receive(); err == nil || i == 1 && !strings.Contains(err.Error(), "closed with 1012") {
			t.Errorf("the end of connection %d is %v", i, err)
		}
	}
	v.ask("and goes on\n")
	if v.Missed() != 0 {
		t.Error("an attachment missed bytes although its connection could be moved")
	}
}

// The address for WebSockets is a setting, so that pages find any next proxy. A second proxy must not try to
// listen on the same port.
func TestWebSetting(t *testing.T) {
	t.Parallel()
	address := testkit.FreeAddress(t)
	w := newWorld(t, "HOLDFAST_WEB="+address, "HOLDFAST_WEB_ORIGINS=https://a.example, https://b.example")
	connects := func(origin string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, "http://"+address+"/v1/api", nil)
		testkit.Must(t, err)
		for name, value := range map[string]string{
			"Origin": origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": api.Subprotocol,
		} {
			request.Header.Set(name, value)
		}
		answer, err := http.DefaultTransport.RoundTrip(request)
		testkit.Must(t, err)
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	w.Must("proxy", "start")
	w.Start(w.Command("proxy", "serve", "--background", "--proxy", "blue"))
	testkit.Eventually(t, limit, func() bool { _, err := os.Stat(w.Path("blue.sock")); return err == nil }, "the second proxy serves")
	for range 2 {
		for origin, want := range map[string]int{"https://a.example": 101, "https://b.example": 101, "https://c.example": 403} {
			if got := connects(origin); got != want {
				t.Errorf("the answer to the origin %s is %d, want %d", origin, got, want)
			}
		}
		w.Kill(lookup(w.Holder("proxy.sock")))
		w.Must("proxy", "ls")
	}
}
