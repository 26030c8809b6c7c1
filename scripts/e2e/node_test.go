package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// oracle returns the directory of the programs that need npm packages. It skips the test if the package or
// one of the programs is not installed. If HOLDFAST_REQUIRE_ORACLE is 1, it fails the test instead.
func oracle(t testing.TB, pkg string, programs ...string) string {
	t.Helper()
	dir := filepath.Join("..", "oracle")
	_, err := os.Stat(filepath.Join(dir, "node_modules", pkg))
	for _, p := range programs {
		if err == nil {
			_, err = exec.LookPath(p)
		}
	}
	if err != nil && os.Getenv("HOLDFAST_REQUIRE_ORACLE") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skipf("%v; scripts/check.sh installs it", err)
	}
	return dir
}

// WebSocket connections of Node's package ws must stay open through handoffs, on TCP and on the Unix socket,
// for the api and for raw terminals. One kind of client types all the time. One kind has written half of a
// message when each handoff begins. One kind pastes more bytes than all buffers hold, and does not read
// meanwhile.
// demand: S9
func TestNodeWebSockets(t *testing.T) {
	t.Parallel()
	dir := oracle(t, "ws", "node")
	w := newWorld(t, bigRing)
	address, token := w.webProxy()
	c := w.connect(client.Options{Name: "e2e"})
	type about struct {
		Name    string `json:"name"`
		Does    string `json:"does"`
		URL     string `json:"url"`
		Session string `json:"session,omitempty"`
		Token   string `json:"token,omitempty"`
	}
	var clients []about
	unix := "ws+unix:" + w.Path("proxy.web.sock") + ":"
	for _, does := range []string{"types", "halves", "pastes"} {
		raw, rawUnix := does+"-raw", does+"-raw-unix"
		w.echoAlone(c, raw)
		w.echoAlone(c, rawUnix)
		clients = append(clients,
			about{Name: raw, Does: does, URL: w.rawURL(c, address, raw)},
			about{Name: rawUnix, Does: does, URL: unix + "/v1/sessions/" + rawUnix + "/raw"},
		)
		if does == "pastes" {
			continue
		}
		api, apiUnix := does+"-api", does+"-api-unix"
		w.echoAlone(c, api)
		w.echoAlone(c, apiUnix)
		clients = append(clients,
			about{Name: api, Does: does, URL: "ws://" + address + "/v1/api", Session: api, Token: token},
			about{Name: apiUnix, Does: does, URL: unix + "/v1/api", Session: apiUnix},
		)
	}
	config, err := json.Marshal(clients)
	testkit.Must(t, err)
	n := startNode(t, dir, "websocket.mjs")
	n.ask(string(config), "open")
	for range handoffsTyped {
		n.ask("begin", "begin")
		w.handOff()
		n.ask("rest", "rest")
	}
	t.Logf("through %d handoffs: %s", handoffsTyped, n.ask("end", "end"))
}

// A node is a running JavaScript program of scripts/oracle that reads commands as lines, and answers each
// with a line.
type node struct {
	t      *testing.T
	stdin  io.Writer
	stdout *bufio.Scanner
	errout *bytes.Buffer
}

func startNode(t *testing.T, dir, program string) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*limit)
	cmd := exec.CommandContext(ctx, "node", program)
	n := &node{t: t, errout: &bytes.Buffer{}}
	cmd.Dir, cmd.Stderr = dir, n.errout
	stdin, err := cmd.StdinPipe()
	testkit.Must(t, err)
	stdout, err := cmd.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, cmd.Start())
	n.stdin, n.stdout = stdin, bufio.NewScanner(stdout)
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if t.Failed() && n.errout.Len() > 0 {
			t.Logf("output of %s: %s", program, n.errout)
		}
	})
	return n
}

// ask sends a line and expects an answer whose first word is answer. It returns the remainder of the answer.
func (n *node) ask(line, answer string) string {
	n.t.Helper()
	_, err := fmt.Fprintln(n.stdin, line)
	if !n.stdout.Scan() {
		n.t.Fatalf("no answer to %q: write %v, read %v", line, err, n.stdout.Err())
	}
	word, rest, _ := strings.Cut(n.stdout.Text(), " ")
	if word != answer {
		n.t.Fatalf("the answer to %q is %q", line, n.stdout.Text())
	}
	return rest
}

// An agent uses sessions through the client of the Model Context Protocol's own SDK, while the proxy is
// handed over and killed. It must receive exit codes, the output of commands, and which states are guesses.
// It must neither type into a person's session nor end it.
func TestAgent(t *testing.T) {
	t.Parallel()
	dir := oracle(t, "@modelcontextprotocol/sdk", "node", "bash")
	w := newWorld(t, "SHELL=/bin/bash")
	cmd := exec.CommandContext(t.Context(), "node", "mcp.mjs", w.Program("proxy"))
	cmd.Dir, cmd.Env = dir, w.Command("proxy").Env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// An agent gets terminals of Holdfast between an editor and itself. The protocol's own SDK plays both. The terminals
// survive a handoff and the death of the proxy, of the command, of the agent and of the editor.
func TestAgentClientProtocol(t *testing.T) {
	t.Parallel()
	dir := oracle(t, "@agentclientprotocol/sdk", "node")
	w := newWorld(t)
	cmd := exec.CommandContext(t.Context(), "node", "acp.mjs", w.Program("proxy"))
	cmd.Dir, cmd.Env = dir, w.Command("proxy").Env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
