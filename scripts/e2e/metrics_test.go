package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// observer sends HTTP requests to a proxy, each on a connection of its own.
type observer struct {
	t    testing.TB
	http *http.Client
	base string
}

func (w *world) observer(network, address string) *observer {
	return &observer{w.T, &http.Client{Timeout: limit, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}}, "http://" + map[string]string{"unix": "localhost", "tcp": address}[network]}
}

func (o *observer) get(path, token string) (status int, body string) {
	o.t.Helper()
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, o.base+path, nil)
	testkit.Must(o.t, err)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := o.http.Do(r)
	if err != nil {
		o.t.Fatalf("%s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, string(b)
}

// numbers returns the metrics whose names begin with holdfast_, by the remainder of the name with its labels.
func (o *observer) numbers(token string) map[string]float64 {
	o.t.Helper()
	status, body := o.get("/metrics", token)
	if status != http.StatusOK {
		o.t.Fatalf("metrics: %d %s", status, body)
	}
	all := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(body)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "holdfast_") {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				o.t.Fatalf("%q: %v", lines.Text(), err)
			}
			all[strings.TrimPrefix(name, "holdfast_")] = n
		}
	}
	return all
}

// The metrics must count the events of both programs, on the Unix socket and on TCP, and a new proxy must
// continue them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, token := w.webProxy()
	unix, tcp := w.observer("unix", w.Path("proxy.web.sock")), w.observer("tcp", address)
	for _, o := range []*observer{unix, tcp} {
		if status, body := o.get("/healthz", ""); status != 200 || body != "ok\n" {
			t.Errorf("/healthz of %s: %d %q", o.base, status, body)
		}
	}
	if status, body := tcp.get("/metrics", ""); status != 401 {
		t.Errorf("metrics without a token: %d %s, want 401", status, body)
	}
	before := unix.numbers("")
	if before["supervisor_up"] != 1 || before["supervisor_spawns_total"] != 0 || before[`proxy_refusals_total{code="unauthorized"}`] != 1 {
		t.Errorf("the metrics before the first session: %v", before)
	}

	c := w.dial(client.Options{})
	v := w.echo(c, "secretive")
	said := strings.Repeat("x", 1000) + "\n"
	v.ask(said)
	now := tcp.numbers(token)
	for name, least := range map[string]float64{
		"supervisor_printed_bytes_total": float64(len("ready\n" + said)), "supervisor_typed_bytes_total": float64(len(said)),
		"supervisor_spawns_total": 1, `supervisor_sessions{state="running"}`: 1, "supervisor_attachments": 1,
		"proxy_attachments": 1, `proxy_connections{transport="unix"}`: 1, `proxy_requests_total{type="spawn"}`: 1, `proxy_requests_total{type="attach"}`: 1,
	} {
		if now[name] < least || now[name] <= before[name] {
			t.Errorf("%s was %v; now it is %v, want at least %v", name, before[name], now[name], least)
		}
	}
	if _, body := unix.get("/metrics", ""); strings.Contains(body, "secretive") || strings.Contains(body, w.Dir) {
		t.Error("the metrics contain the session's id or a path")
	}

	w.handOff()
	v.ask("and goes on\n")
	for _, o := range []*observer{unix, tcp} {
		if status, body := o.get("/healthz", ""); status != 200 {
			t.Errorf("/healthz of %s after a handoff: %d %q", o.base, status, body)
		}
	}
	after := tcp.numbers(token)
	if after["supervisor_printed_bytes_total"] <= now["supervisor_printed_bytes_total"] || after["supervisor_spawns_total"] != 1 ||
		after["proxy_takeover_connections"] == 0 || after["proxy_takeover_stall_seconds"] == 0 {
		t.Errorf("the metrics after a handoff: %v", after)
	}
}

// If the supervisor does not answer, /healthz must report this within its time limit. If no supervisor runs,
// /healthz must not start one.
func TestNotHealthy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address, _ := w.webProxy()
	o := w.observer("unix", w.Path("proxy.web.sock"))
	held := w.Only("supervisor")
	unwell := func(why string) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool {
			status, body := o.get("/healthz", "")
			return status == 503 && strings.Contains(body, `"code":"supervisor_unreachable"`)
		}, why+" is reported")
		if n := o.numbers(""); n["supervisor_up"] != 0 {
			t.Errorf("%s: supervisor_up is not 0", why)
		}
	}
	w.Stop(held)
	unwell("a stopped supervisor")
	held.Signal(syscall.SIGCONT)
	testkit.Eventually(t, limit, func() bool { status, _ := o.get("/healthz", ""); return status == 200 }, "the continued supervisor is healthy")
	w.Kill(held)
	testkit.Eventually(t, limit, func() bool { status, _ := o.get("/healthz", ""); return status == 200 }, "the supervisor that the keeper has started is healthy")
	w.KillBoth()
	unwell("the end of the supervisor")
	if left := append(w.Running("supervisor"), w.Running("keeper")...); len(left) > 0 {
		t.Errorf("/healthz has started %v", fmt.Sprint(left))
	}
	if status, _ := w.observer("tcp", address).get("/healthz", ""); status != 503 {
		t.Errorf("/healthz on TCP: %d, want 503", status)
	}
	w.Start(w.Command("supervisor", "--background"))
	testkit.Eventually(t, limit, func() bool { status, _ := o.get("/healthz", ""); return status == 200 }, "a new supervisor is found without a request for a session")
}
