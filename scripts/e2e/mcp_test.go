package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"holdfast/shared/testkit"
)

// An mcpAgent calls the tools of "proxy mcp".
type mcpAgent struct {
	t     *testing.T
	in    io.Writer
	out   *bufio.Reader
	calls int
}

// startMCP starts "proxy mcp" for an agent, until the end of the test.
func (w *world) startMCP(t *testing.T) *mcpAgent {
	t.Helper()
	cmd := w.Command("proxy", "mcp")
	in, err := cmd.StdinPipe()
	testkit.Must(t, err)
	out, to, err := os.Pipe() // a pipe of its own has deadlines
	testkit.Must(t, err)
	cmd.Stdout = to
	w.Start(cmd)
	t.Cleanup(func() { _ = in.Close(); _ = to.Close(); _ = out.Close() })
	testkit.Must(t, out.SetReadDeadline(time.Now().Add(3*limit)))
	a := &mcpAgent{t: t, in: in, out: bufio.NewReader(out)}
	var ready struct{}
	a.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}`, &ready)
	a.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return a
}

func (a *mcpAgent) send(line string) {
	a.t.Helper()
	if _, err := io.WriteString(a.in, line+"\n"); err != nil {
		a.t.Fatal(err)
	}
}

// ask sends a request with params as JSON, and decodes its result.
func (a *mcpAgent) ask(method, params string, result any) {
	a.t.Helper()
	a.calls++
	a.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.calls, method, params))
	for {
		line, err := a.out.ReadBytes('\n')
		if err != nil {
			a.t.Fatalf("no answer to %s %s: %v", method, params, err)
		}
		var m struct {
			ID     int
			Result json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			a.t.Fatalf("%v: %q", err, line)
		}
		if m.ID != a.calls { // a notification
			continue
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			a.t.Fatalf("%v: the answer to %s %s is %q", err, method, params, line)
		}
		return
	}
}

// says calls a tool, which must not fail, and returns its answer.
func (a *mcpAgent) says(tool, input string) string {
	a.t.Helper()
	var r struct {
		Content []struct{ Text string }
		IsError bool
	}
	a.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, input), &r)
	if r.IsError || len(r.Content) != 1 {
		a.t.Fatalf("%s %s answers %+v", tool, input, r)
	}
	return r.Content[0].Text
}

// An agent uses the id of a session again that was forgotten, and reads a session that a person has reopened. All
// answers must show the new instance from its beginning, because an agent that receives an error for a command
// runs it again. Each command must have run once.
func TestAgentUsesIDAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.startMCP(t)
	ran := w.Path("ran")
	command := fmt.Sprintf("n=$(cat %[1]s 2>/dev/null | wc -l); echo run $((n+1)) | tee -a %[1]s", ran)
	input := fmt.Sprintf(`{"session":"build","command":%q}`, command)
	check := func(tool, input, want string) {
		t.Helper()
		if got := a.says(tool, input); got != want {
			t.Errorf("%s answers %q, want %q", tool, got, want)
		}
	}
	check("run", input, "ended with code 0\nrun 1")
	w.Must("proxy", "forget", "build")
	check("run", input, "ended with code 0\nrun 2")
	check("read", `{"session":"build"}`, "ended with code 0")
	check("wait", `{"session":"build"}`, "ended with code 0")
	w.Must("proxy", "reopen", "--detach", "build")
	check("wait", `{"session":"build"}`, "ended with code 0\nrun 3")
	check("read", `{"session":"build"}`, "ended with code 0")
	if b, err := os.ReadFile(ran); err != nil || string(b) != "run 1\nrun 2\nrun 3\n" {
		t.Errorf("the commands have written %q, %v", b, err)
	}
}
