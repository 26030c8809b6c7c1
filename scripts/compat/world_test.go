//go:build linux

package compat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
	programs "holdfast/shared/testkit/world"
)

const limit = programs.Limit

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

var lookup = programs.Lookup

type (
	process = programs.Process
	result  = programs.Result
)

// A world runs the programs of several versions.
type world struct {
	*programs.World
	bins map[string]string // directory by version

	web    context.Context // ends all WebSockets
	hangUp context.CancelFunc
}

func newWorld(t testing.TB, bins map[string]string) *world {
	t.Helper()
	w := &world{World: programs.New(t, testkit.Dir(t), "", bins[here], "PATH="+os.Getenv("PATH")), bins: bins}
	w.web, w.hangUp = context.WithCancel(context.Background())
	t.Cleanup(w.End)
	return w
}

// command returns a command of a version's program.
func (w *world) command(version, program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(w.bins[version], program), args...)
	cmd.Env, cmd.Dir = w.Env, w.Cwd
	return cmd
}

// run runs a program, with in as standard input, until it ends.
func (w *world) run(in io.Reader, version, program string, args ...string) result {
	w.T.Helper()
	cmd := w.command(version, program, args...)
	cmd.Stdin = in
	return w.RunCommand(cmd)
}

// proxy runs a version's proxy, which must succeed, and returns its output.
func (w *world) proxy(version string, args ...string) string {
	w.T.Helper()
	return w.must(version, "proxy", args...)
}

// must runs a program, which must succeed, and returns its output.
func (w *world) must(version, program string, args ...string) string {
	w.T.Helper()
	r := w.run(nil, version, program, args...)
	if r.Code != 0 {
		w.T.Fatalf("%s %s %s: %v", version, program, strings.Join(args, " "), r)
	}
	return r.Out
}

// start starts a supervisor and a proxy, and returns the address of the proxy's WebSockets.
func (w *world) start(supervisor, proxy string) (address string) {
	w.T.Helper()
	pid := w.daemon(w.command(supervisor, "supervisor", "--background"))
	testkit.Eventually(w.T, limit, func() bool {
		held := w.supervisor()
		return held.PID == pid || held.Parent() == pid // a release may consist of one process, or of two
	}, "the supervisor serves")
	return w.startProxy(proxy)
}

// startProxy starts a proxy, which starts a supervisor if none runs.
func (w *world) startProxy(proxy string) (address string) {
	w.T.Helper()
	w.daemon(w.command(proxy, "proxy", "serve", "--background", "--web", "127.0.0.1:0"))
	testkit.Eventually(w.T, limit, func() bool {
		log, _ := os.ReadFile(w.Path("proxy.log"))
		_, after, _ := strings.Cut(string(log), `"address":"`)
		address, _, _ = strings.Cut(after, `"`)
		return address != ""
	}, "the proxy serves WebSockets on TCP")
	return address
}

// supervisor returns the process that holds the supervisor's socket. If there is none, the result has the pid
// 0 and does not run.
func (w *world) supervisor() process {
	return lookup(w.Holder("supervisor.sock"))
}

// daemon starts a program that runs until the end of the test.
func (w *world) daemon(cmd *exec.Cmd) (pid int) {
	w.T.Helper()
	testkit.Must(w.T, cmd.Start())
	go func() { _ = cmd.Wait() }() // so that the process does not stay a zombie
	return cmd.Process.Pid
}

func (w *world) connect() *client.Client {
	w.T.Helper()
	c, err := client.Dial(w.ctx(), client.Options{Dir: w.Dir, Name: "compat"})
	testkit.Must(w.T, err)
	w.T.Cleanup(func() { _ = c.Close() })
	return c
}

// ctx returns a context that ends with the test, at the latest after limit.
func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.T.Context(), limit)
	w.T.Cleanup(cancel)
	return ctx
}

// status returns the status of both processes, as a version's command prints it.
func (w *world) status(version string) (s client.Status) {
	w.T.Helper()
	out := w.proxy(version, "status", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil || s.Supervisor == nil {
		w.T.Fatalf("%v in %s", err, out)
	}
	return s
}

// showsSkew checks the status of two running versions, as a version's command prints it.
func (w *world) showsSkew(version, proxy, supervisor string) {
	w.T.Helper()
	if s := w.status(version); s.Proxy.Version != proxy || s.Supervisor.Version != supervisor {
		w.T.Errorf("%s: status says proxy %s, supervisor %s, want %s, %s", version, s.Proxy.Version, s.Supervisor.Version, proxy, supervisor)
	}
	skew := "skew: none"
	if proxy != supervisor {
		skew = fmt.Sprintf("skew: versions differ; they speak protocol %d", protocol.Version)
	}
	out := w.proxy(version, "status")
	for _, says := range []string{"version " + proxy + " ", "version " + supervisor + " ", skew} {
		if !strings.Contains(out, says) {
			w.T.Errorf("%s: status lacks %q: %s", version, says, out)
		}
	}
}

// commands runs a version's commands with the running proxy: new, send, screen, attach and wait.
func (w *world) commands(version, id string) {
	w.T.Helper()
	w.proxy(version, "new", "--detach", "--early-exit", "0", "--id", id, "--",
		"/bin/sh", "-c", "stty -echo; echo ready; read a; echo got $a; read b; echo got $b; exit 7")
	w.proxy(version, "send", id, "--enter", "one")
	var shows string
	testkit.Eventually(w.T, limit, func() bool {
		shows = w.proxy(version, "screen", id)
		return strings.Contains(shows, "got one")
	}, version+": the screen shows the answer to the input")
	r := w.run(strings.NewReader("two\n"), version, "proxy", "attach", id)
	if r.Code != 7 || !strings.HasSuffix(strings.ReplaceAll(r.Out, "\r", ""), "got one\ngot two\n") {
		w.T.Errorf("%s: attach: %v", version, r)
	}
	if r := w.run(nil, version, "proxy", "wait", id); r.Code != 7 {
		w.T.Errorf("%s: wait: %v", version, r)
	}
}
