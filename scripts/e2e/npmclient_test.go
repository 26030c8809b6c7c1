package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// npmClient builds the npm client, and returns its directory. It skips the test if Node or TypeScript is not
// installed. If HOLDFAST_REQUIRE_ORACLE is 1, it fails the test instead.
func npmClient(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..", "proxy", "internal", "web", "client")
	_, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "node_modules", "typescript"))
	}
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v; scripts/check.sh installs it", err)
	}
	if out, err := buildNPMClient(dir); err != nil {
		t.Fatalf("tsc: %v\n%s", err, out)
	}
	return dir
}

var (
	npmOnce  sync.Once
	npmBuilt struct {
		out []byte
		err error
	}
)

// buildNPMClient compiles the npm client once.
func buildNPMClient(dir string) ([]byte, error) {
	npmOnce.Do(func() {
		cmd := exec.Command("node", filepath.Join("node_modules", "typescript", "bin", "tsc"), "-p", ".")
		cmd.Dir = dir
		npmBuilt.out, npmBuilt.err = cmd.CombinedOutput()
	})
	return npmBuilt.out, npmBuilt.err
}

// Runs the npm client's own tests.
// demand: B6, B9
func TestNPMClientItself(t *testing.T) {
	t.Parallel()
	dir := npmClient(t)
	paths, err := filepath.Glob(filepath.Join(dir, "test", "*.test.mjs"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	args := []string{"--test", "--test-reporter", "spec"} // repeats the failures at the end
	for _, p := range paths {
		args = append(args, filepath.Join("test", filepath.Base(p)))
	}
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, last(string(out), 8<<10))
	}
}

// Programs that use the npm client type over the Unix socket and over a WebSocket on TCP, through handoffs,
// the death of a proxy and of a supervisor, and an upgrade. Each byte must come once in both directions, each
// request must be answered, and their terminals must show the sessions' screens.
// demand: S9
func TestNPMClient(t *testing.T) {
	t.Parallel()
	dir := npmClient(t)
	w := newWorld(t)
	next := release{"v1.0.0", testkit.BuildVersion(t, "v1.0.0", "holdfast/proxy", "holdfast/supervisor")}
	address, token := w.webProxy()
	c := w.dial(client.Options{Name: "e2e", Start: w.startProxy})
	type about struct {
		Name       string `json:"name"`
		Does       string `json:"does"`
		SocketPath string `json:"socketPath,omitempty"`
		URL        string `json:"url,omitempty"`
		Token      string `json:"token,omitempty"`
		Session    string `json:"session"`
	}
	var clients []about
	for _, does := range []string{"types", "shows", "overtaken", "asks"} {
		unix, tcp := does+"-unix", does+"-tcp"
		for _, id := range []string{unix, tcp} {
			switch does {
			case "types", "shows":
				w.echoAlone(c, id)
			case "overtaken":
				w.spawn(c, id, shell(loudScript))
			}
		}
		clients = append(clients,
			about{Name: unix, Does: does, SocketPath: w.Path("proxy.sock"), Session: unix},
			about{Name: tcp, Does: does, URL: "ws://" + address + "/v1/api", Token: token, Session: tcp},
		)
	}
	config, err := json.Marshal(clients)
	testkit.Must(t, err)
	n := startNode(t, dir, filepath.Join("test", "real.mjs"))
	n.ask(string(config), "open")
	for _, happens := range []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"a handoff", w.handOff},
		{"the proxy's death", func() {
			w.Kill(w.Only("proxy"))
			w.Start(w.Command("proxy", "serve", "--background", "--web", address))
		}},
		{"the supervisor's death", func() { w.KillSupervisor() }},
		{"an upgrade", func() { w.upgrade(c, next) }},
		{"another handoff", w.handOff},
		{"another death of the proxy", func() {
			w.Kill(w.Only("proxy"))
			w.Start(w.Command("proxy", "serve", "--background", "--web", address))
		}},
	} {
		began := time.Now()
		happens.do()
		done := time.Now()
		n.ask("on", "on")
		t.Logf("the clients continued after %s, which took %v, within %v", happens.name, done.Sub(began), time.Since(done))
	}
	t.Logf("%s", n.ask("end", "end"))
	for _, id := range []string{"types-unix", "types-tcp"} {
		if info, err := c.SessionInfo(w.ctx(), protocol.SessionID(id)); err != nil || info.State != protocol.StateRunning {
			t.Errorf("%s is %+v, %v", id, info, err)
		}
	}
}

// loudScript prints about 2 MB for each line of input but the last.
const loudScript = `stty -echo; while read x; do
	[ "$x" = end ] && { echo; echo the end; continue; }
	seq 300000
done`
