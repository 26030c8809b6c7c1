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

// What a handoff tells, and the one that is only tried.
// demand: S9
func TestHandoffCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	old := w.Only("proxy")
	if out := w.Must("proxy", "--handoff", "--dry-run"); !strings.Contains(out, fmt.Sprintf("could take over from pid %d", old.PID)) {
		t.Errorf("tried: %q", out)
	}
	all, names := steps(t, w.Must("proxy", "--handoff", "--dry-run", "--json"))
	if got := strings.Join(names, " "); got != "linked offered compared looked" || all[1].PID != old.PID || all[2].Sessions != 1 {
		t.Errorf("tried: %+v", all)
	}
	if now := w.Only("proxy"); now != old || c.ProxyPID() != old.PID {
		t.Fatalf("the proxy was %v, and is %v", old, now)
	}
	v.ask("nothing has happened\n")

	all, names = steps(t, w.Must("proxy", "--handoff", "--json"))
	now := w.Only("proxy")
	if got := strings.Join(names, " "); got != "linked offered compared moved serving" {
		t.Fatalf("steps %s", got)
	}
	if moved := all[3]; moved.Connections == 0 || moved.StallMaxMS == 0 || all[4].PID != now.PID || now == old {
		t.Errorf("told %+v; process %d serves", all, now.PID)
	}
	v.ask("and goes on\n")

	w.Env = append(w.Env, "HOLDFAST_LOG_LEVEL=loud")
	r := w.Run("proxy", "--handoff", "--json")
	if r.Code == 0 || !strings.Contains(r.Errout, "log_level") {
		t.Errorf("a mistake in the settings: %v", r)
	}
	for _, args := range [][]string{
		{"--timeout", "0s"}, {"--timeout", "1h"}, {"--verify", "some"}, {"--from-dir", "/nowhere"}, {"--foreground", "--json"},
	} {
		if r := w.Run("proxy", append([]string{"--handoff"}, args...)...); r.Code != 64 {
			t.Errorf("%v: %v", args, r)
		}
	}
	if left, _ := filepath.Glob(w.Path("proxy.handoff-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A handoff compares a sample of many sessions, and all of them only if that is asked for.
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

// While one is under way another one is refused.
func TestTwoHandoffs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	v := w.echo(w.dial(client.Options{}), "s")
	old := w.Only("proxy")
	good := w.Env
	w.Env = append(good[:len(good):len(good)], "HOLDFAST_FAULT=taken=hang")
	hanging := w.Start(w.Command("proxy", "--handoff", "--timeout", "5s"))
	testkit.Eventually(t, limit, func() bool { return len(w.Running("proxy")) == 2 }, "the first is under way")
	w.Env = good
	testkit.Eventually(t, limit, func() bool {
		r := w.Run("proxy", "--handoff", "--dry-run")
		return r.Code == 75 && strings.Contains(r.Errout, "another handoff is under way")
	}, "the second is refused")
	hanging.Wait(t)
	if hanging.Code == 0 {
		t.Error("the one that hangs has succeeded")
	}
	if now := w.Only("proxy"); now != old {
		t.Errorf("the proxy was %v, and is %v", old, now)
	}
	v.ask("nothing has happened\n")
	w.Must("proxy", "--handoff")
}

// Pages that may connect may do so after a handoff; a request that is half read,
// and a ticket that is out, are good at the next proxy.
// demand: S9
func TestRequestsMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, _ := w.webProxy("--web-origin", "https://pages.example")
	c := w.connect(client.Options{Name: "e2e"})
	w.echoAlone(c, "s")
	for range 3 {
		ticket, err := c.Ticket(w.ctx(), "s")
		if err != nil {
			t.Fatal(err)
		}
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
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
			t.Errorf("answered %+v, %v", answer, err)
		}
		_ = nc.Close()
	}
}

// A service manager is told of the new main process before the old one has gone,
// and that one's log goes where the command's does.
func TestHandoffUnderServiceManager(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: w.Path("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	told := func() (pid int) {
		t.Helper()
		buf := make([]byte, 1<<10)
		_ = manager.SetReadDeadline(time.Now().Add(limit))
		n, err := manager.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(string(buf[:n]), "READY=1\nMAINPID=%d", &pid); err != nil {
			t.Fatalf("told %q: %v", buf[:n], err)
		}
		return pid
	}
	w.Env = append(w.Env, "NOTIFY_SOCKET="+manager.LocalAddr().String())
	first := w.Start(w.Command("proxy", "serve"))
	if pid := told(); pid != first.PID {
		t.Errorf("told of process %d, started was %d", pid, first.PID)
	}
	v := w.echo(w.connect(client.Options{Name: "e2e"}), "s")
	log, err := os.Create(w.Path("reload.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	reload := w.Command("proxy", "--handoff")
	reload.Stderr = log
	if err := reload.Run(); err != nil {
		t.Fatal(err)
	}
	now := told()
	first.Wait(t)
	if first.Code != 0 || now == first.PID || w.Only("proxy").PID != now {
		t.Errorf("the first ended with %d, told of %d", first.Code, now)
	}
	if b, _ := os.ReadFile(log.Name()); !strings.Contains(string(b), "proxy serves") {
		t.Errorf("the new one's log: %q", b)
	}
	v.ask("and goes on\n")
}

// A connection that does not come to rest is told to come again, on each
// transport in its words; nobody else is held up for long, or closed.
func TestHandoffTellsWhoCannotMove(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.doors()
	v := w.echo(d.c, "s")
	watched := api.Spawn{EarlyExitMS: new(int64(20_000)), SpawnSpec: shell("exec sleep 1000")} // without a token it cannot be asked for again
	var restless []*peer
	for _, by := range []way{framed, webTCP} {
		p, err := d.greeted(by)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		if err := p.send(watched); err != nil {
			t.Fatal(err)
		}
		restless = append(restless, p)
	}
	testkit.Eventually(t, limit, func() bool {
		all, err := d.c.List(w.ctx(), "")
		return err == nil && len(all) == 3
	}, "the sessions that are watched run")
	out := w.Must("proxy", "--handoff")
	if !strings.Contains(out, "2 asked to reconnect") {
		t.Errorf("it says %q", out)
	}
	for i, p := range restless {
		m, err := p.receive()
		if m, ok := m.(*api.Goaway); !ok || m.Reason != "handoff" {
			t.Errorf("connection %d is told %+v, %v", i, m, err)
		}
		if _, err := p.receive(); err == nil || i == 1 && !strings.Contains(err.Error(), "closed with 1012") {
			t.Errorf("connection %d ends with %v", i, err)
		}
	}
	v.ask("and goes on\n")
	if v.Missed() != 0 {
		t.Error("a connection that could be moved was not")
	}
}

// Where WebSockets are served is a setting: whoever starts the proxy, pages find
// it again. A second proxy does not want the same port.
func TestWebSetting(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, "HOLDFAST_WEB="+address, "HOLDFAST_WEB_ORIGINS=https://a.example, https://b.example")
	connects := func(origin string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(w.ctx(), http.MethodGet, "http://"+address+"/v1/api", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Origin": origin, "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": api.Subprotocol,
		} {
			request.Header.Set(name, value)
		}
		answer, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	w.Must("proxy", "start")
	w.Start(w.Command("proxy", "serve", "--background", "--proxy", "blue"))
	testkit.Eventually(t, limit, func() bool { _, err := os.Stat(w.Path("blue.sock")); return err == nil }, "the second proxy serves")
	for range 2 {
		for origin, want := range map[string]int{"https://a.example": 101, "https://b.example": 101, "https://c.example": 403} {
			if got := connects(origin); got != want {
				t.Errorf("%s is answered %d, want %d", origin, got, want)
			}
		}
		w.Kill(lookup(w.Holder("proxy.sock")))
		w.Must("proxy", "ls")
	}
}
