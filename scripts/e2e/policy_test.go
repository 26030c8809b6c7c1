package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"holdfast/protocol"
	"holdfast/protocol/api"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// annsToken and bobsToken are the tokens of the policy's users in these tests.
const (
	annsToken = "ann-0123456789abcdef0123456789abcdef"
	bobsToken = "bob-0123456789abcdef0123456789abcdef"
)

// policyConfig returns the configuration of the example policy: ann has the workspace a, bob has b, and a
// client without a token is the operator.
func policyConfig(dir string) map[string]any {
	sum := func(token string) []string {
		s := sha256.Sum256([]byte(token))
		return []string{hex.EncodeToString(s[:])}
	}
	return map[string]any{
		"users": []map[string]any{
			{"user": "ann", "tokens_sha256": sum(annsToken), "workspace": "a", "roles": []string{"all"}},
			{"user": "bob", "tokens_sha256": sum(bobsToken), "workspace": "b", "roles": []string{"all"}},
			{"user": "operator", "uid": os.Getuid(), "roles": []string{"all"}, "all": true},
		},
		"tasks": []map[string]any{
			{
				"id": "build", "workspace": "a", "work_dir": dir, "argv": []string{"/bin/sh"}, "env": []string{"COLOUR=red"},
				"labels": map[string]string{"title": "the build"}, "issue_id": "I-7", "prior_agent_session_id": "p-1",
			},
			{"id": "theirs", "workspace": "b", "work_dir": dir, "argv": []string{"/bin/sh"}},
		},
		"rules": map[string]any{"all": []string{"spawn", "list", "read", "type", "terminate"}},
		"audit": filepath.Join(dir, "audit.jsonl"),
	}
}

// guardedWorld starts a proxy with the example policy.
func guardedWorld(t *testing.T, args ...string) *world {
	t.Helper()
	w := newWorld(t)
	b, err := json.Marshal(policyConfig(w.Dir))
	if err == nil {
		err = os.WriteFile(w.Path("policy.json"), b, 0o600)
	}
	testkit.Must(t, err)
	w.Start(w.Command("proxy", append([]string{
		"serve", "--background", "--policy", w.policyProgram(), "--policy-config", w.Path("policy.json"),
	}, args...)...))
	testkit.Eventually(t, limit, func() bool {
		_, err := os.Lstat(w.Path("proxy.policy")) // the proxy writes this file last
		return err == nil && w.Holder("proxy.sock") != 0
	}, "the proxy serves")
	return w
}

func (w *world) policyProgram() string {
	w.T.Helper()
	return filepath.Join(testkit.Build(w.T, "holdfast/proxy/policy/examples/file"), "file")
}

// as returns a client with a token.
func (w *world) as(token string) *client.Client {
	w.T.Helper()
	return w.dial(client.Options{Token: token, Name: strings.Split(token, "-")[0]})
}

// runAs runs a command with a token.
func (w *world) runAs(token string, args ...string) (out string, code int) {
	w.T.Helper()
	cmd := w.Command("proxy", args...)
	cmd.Env = append(slices.Clone(cmd.Env), "HOLDFAST_TOKEN="+token)
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.T.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// A task's terminal must run the command of the policy in the directory of the policy, and the child's
// environment must name the task. An unknown task must open no terminal.
// demand: M2, M4
func TestTaskOfPolicy(t *testing.T) {
	t.Parallel()
	w := guardedWorld(t)
	p := w.client(api.Hello{Protocol: protocol.Supported(), Token: annsToken})
	for _, tt := range []struct {
		task, workspace string
		want            protocol.Code
	}{
		{"none", "a", protocol.CodeTaskNotFound}, {"theirs", "a", protocol.CodeWorkspaceMismatch}, {"build", "b", protocol.CodeWorkspaceMismatch},
		{"", "a", protocol.CodeTaskNotFound},
	} {
		testkit.Must(t, p.send(api.TerminalOpen{TaskID: tt.task, WorkspaceID: tt.workspace}))
		for {
			m, err := p.receive()
			testkit.Must(t, err)
			if e, ok := m.(*api.TerminalError); ok {
				if e.Code != tt.want {
					t.Errorf("%+v: the error is %+v", tt, e)
				}
				break
			}
		}
	}
	operator := w.dial(client.Options{})
	if all, err := operator.List(w.ctx(), ""); err != nil || len(all) > 0 {
		t.Errorf("after the refusals the sessions are %+v, %v; want none", all, err)
	}

	testkit.Must(t, p.send(api.TerminalOpen{TaskID: "build", WorkspaceID: "a", UserID: "ann", Cols: 200}))
	script := "for v in WORKSPACE TASK ISSUE USER; do eval echo $v=\\$HOLDFAST_${v}_ID; done; " +
		"echo PRIOR=$HOLDFAST_PRIOR_AGENT_SESSION_ID COLOUR=$COLOUR PATH=${PATH:+inherited} PWD=$PWD; exit 3\n"
	printed := ""
	for ended := false; !ended; {
		m, err := p.receive()
		testkit.Must(t, err)
		switch m := m.(type) {
		case *api.TerminalOpened:
			if m.WorkDir != w.Dir || m.Shell != "/bin/sh" {
				t.Errorf("the opened terminal is %+v", m)
			}
			testkit.Must(t, p.send(api.TerminalData{SessionID: m.SessionID, Data: []byte(script)}))
		case *api.TerminalData:
			printed += string(m.Data)
		case *api.PTYExited:
			if ended = true; m.ExitCode != 3 || m.SessionTitle != "the build" {
				t.Errorf("the exit is %+v", m)
			}
		case *api.TerminalError:
			t.Fatalf("terminal.open failed: %+v", m)
		}
	}
	for _, want := range []string{
		"WORKSPACE=a\r\n", "TASK=build\r\n", "ISSUE=I-7\r\n", "USER=ann\r\n", "PRIOR=p-1 COLOUR=red PATH=inherited PWD=" + w.Dir,
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("the output lacks %q:\n%s", want, printed)
		}
	}
	// The policy must be told the whole life of the session, without any input or output.
	var audit []byte
	kinds := []string{`"hello"`, `"refused"`, `"spawned"`, `"attached"`, `"exited"`, `"detached"`}
	testkit.Eventually(t, limit, func() bool {
		audit, _ = os.ReadFile(w.Path("audit.jsonl"))
		return !slices.ContainsFunc(kinds, func(kind string) bool { return !strings.Contains(string(audit), kind) })
	}, "the policy has received all events")
	if strings.Contains(string(audit), "COLOUR") || !strings.Contains(string(audit), `"exit_code":3`) {
		t.Errorf("the audit file of the policy contains\n%s", audit)
	}
}

// Two workspaces share one proxy. For each request, the answer about another workspace's session must equal
// the answer about an unknown session, and a client's own session must work.
func TestWorkspaces(t *testing.T) {
	t.Parallel()
	w := guardedWorld(t, "--web", "127.0.0.1:0")
	ann, bob := w.as(annsToken), w.as(bobsToken)
	w.spawn(ann, "work", echoing)
	w.spawn(bob, "work", echoing) // ann has a session with this id, but bob does not see it
	mine, err := ann.SessionInfo(w.ctx(), "work")
	testkit.Must(t, err)
	theirs, err := bob.SessionInfo(w.ctx(), "work")
	if err != nil || theirs.ID == mine.ID {
		t.Fatalf("bob's session is %s, ann's is %s, %v; want different ids", theirs.ID, mine.ID, err)
	}
	v := w.attach(ann, "work", client.AttachOptions{})
	v.until("ready\n")
	v.ask("hello\n")

	p := w.client(api.Hello{Protocol: protocol.Supported(), Token: annsToken})
	if m, err := p.receive(); err != nil || m.MessageType() != "welcome" {
		t.Fatal(m, err)
	}
	// answer returns the answer to ann, with the id replaced.
	answer := func(ask func(id protocol.SessionID) protocol.Message, id protocol.SessionID) string {
		t.Helper()
		testkit.Must(t, p.send(ask(id)))
		m, err := p.receive()
		testkit.Must(t, err)
		b, _ := json.Marshal(m)
		return m.MessageType() + " " + strings.ReplaceAll(string(b), string(id), "ID")
	}
	req := protocol.Request{RequestID: "r"}
	nobody := protocol.SessionID(strings.Replace(string(theirs.ID), "work", "fork", 1))
	for name, ask := range map[string]func(id protocol.SessionID) protocol.Message{
		"info":       func(id protocol.SessionID) protocol.Message { return api.Info{Request: req, SessionID: id} },
		"scrollback": func(id protocol.SessionID) protocol.Message { return api.Scrollback{Request: req, SessionID: id} },
		"screen": func(id protocol.SessionID) protocol.Message {
			return api.Screen{Request: req, ScreenSpec: protocol.ScreenSpec{SessionID: id}}
		},
		"history": func(id protocol.SessionID) protocol.Message {
			return api.History{Request: req, HistorySpec: protocol.HistorySpec{SessionID: id}}
		},
		"search": func(id protocol.SessionID) protocol.Message {
			return api.Search{Request: req, SearchSpec: protocol.SearchSpec{SessionID: id, Pattern: "ready"}}
		},
		"attach": func(id protocol.SessionID) protocol.Message {
			return api.Attach{Request: req, Attachment: 1, AttachSpec: protocol.AttachSpec{SessionID: id, Cols: 10, Steal: true, Mode: protocol.ModeExclusive}}
		},
		"resize": func(id protocol.SessionID) protocol.Message {
			return api.Resize{Request: req, SessionID: id, Cols: 10}
		},
		"size_policy": func(id protocol.SessionID) protocol.Message {
			return api.SizePolicy{Request: req, SessionID: id, Policy: protocol.SizeFixed, Cols: 10}
		},
		"input": func(id protocol.SessionID) protocol.Message {
			return api.Input{Request: req, SessionID: id, Data: []byte("x\n")}
		},
		"interrupt": func(id protocol.SessionID) protocol.Message { return api.Interrupt{Request: req, SessionID: id} },
		"signal": func(id protocol.SessionID) protocol.Message {
			return api.Signal{Request: req, SessionID: id, Signal: "KILL"}
		},
		"terminate":      func(id protocol.SessionID) protocol.Message { return api.Terminate{Request: req, SessionID: id} },
		"terminal.close": func(id protocol.SessionID) protocol.Message { return api.TerminalClose{SessionID: id} },
		"forget":         func(id protocol.SessionID) protocol.Message { return api.Forget{Request: req, SessionID: id} },
		"reopen":         func(id protocol.SessionID) protocol.Message { return api.Reopen{Request: req, SessionID: id} },
		"wait": func(id protocol.SessionID) protocol.Message {
			return api.Wait{Request: req, SessionID: id, TimeoutMS: new(int64(1))}
		},
	} {
		if a, b := answer(ask, theirs.ID), answer(ask, nobody); a != b || !strings.Contains(a, string(protocol.CodeSessionNotFound)) {
			t.Errorf("%s: the answer about bob's session is\n%s\nabout an unknown session\n%s", name, a, b)
		}
	}
	after, err := bob.SessionInfo(w.ctx(), theirs.ID)
	if err != nil || after.State != protocol.StateRunning || after.Size != theirs.Size || after.SizePolicy != theirs.SizePolicy || after.Attachments != 0 {
		t.Errorf("bob's session was %+v; now it is %+v, %v", theirs, after, err)
	}

	// The commands must show the same.
	if out, code := w.runAs(annsToken, "ls", "--json"); code != 0 || !strings.Contains(out, string(mine.ID)) || strings.Contains(out, string(theirs.ID)) {
		t.Errorf("the list of ann (exit %d) is\n%s", code, out)
	}
	a, codeA := w.runAs(annsToken, "screen", string(theirs.ID))
	b, codeB := w.runAs(annsToken, "screen", string(nobody))
	if strings.ReplaceAll(a, string(theirs.ID), "") != strings.ReplaceAll(b, string(nobody), "") || codeA != codeB || codeA == 0 {
		t.Errorf("screen: %q (%d), %q (%d)", a, codeA, b, codeB)
	}
	if out, code := w.runAs("eve", "ls"); code == 0 || !strings.Contains(out, string(protocol.CodeUnauthorized)) {
		t.Errorf("the list with an unknown token (exit %d) is\n%s", code, out)
	}

	// A ticket permits only the sessions that its owner may see.
	log, _ := os.ReadFile(w.Path("proxy.log"))
	_, rest, _ := strings.Cut(string(log), `"address":"`)
	address, _, _ := strings.Cut(rest, `"`)
	raw := func(id protocol.SessionID) int {
		t.Helper()
		ticket, err := ann.Ticket(w.ctx(), id)
		testkit.Must(t, err)
		c, resp, err := websocket.Dial(w.ctx(), fmt.Sprintf("ws://%s/v1/sessions/%s/raw?ticket=%s", address, id, ticket), nil)
		if err == nil {
			_ = c.CloseNow()
		}
		if resp == nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	if a, b, c, d := raw(theirs.ID), raw(nobody), raw(mine.ID), raw("work"); a != http.StatusNotFound || b != a || c != http.StatusSwitchingProtocols || d != c {
		t.Errorf("raw WebSockets: bob's session %d, an unknown session %d, ann's session %d and %d", a, b, c, d)
	}
	v.ask("and on\n")
}

// plugins returns the processes of the policy.
func (w *world) plugins() []process { return w.Running("file") }

// In a handoff the new proxy must start its own policy process before it takes over, and clients must keep
// their users.
func TestPolicyHandoff(t *testing.T) {
	t.Parallel()
	w := guardedWorld(t)
	ann, bob := w.as(annsToken), w.as(bobsToken)
	w.spawn(ann, "s", echoing)
	w.spawn(bob, "b", shell("exec sleep 1000"))
	theirs, err := bob.SessionInfo(w.ctx(), "b")
	testkit.Must(t, err)
	v := w.attach(ann, "s", client.AttachOptions{})
	v.until("ready\n")
	for i := range 3 {
		before := w.plugins()
		w.handOff()
		testkit.Eventually(t, limit, func() bool { return len(w.plugins()) == 1 }, "the policy process of the old proxy has ended")
		if after := w.plugins(); len(before) != 1 || after[0].PID == before[0].PID {
			t.Errorf("the policy processes were %v; now they are %v", before, after)
		}
		v.ask(fmt.Sprintf("after %d\n", i))
		all, err := ann.List(w.ctx(), "")
		if err != nil || len(all) != 1 {
			t.Errorf("the list of ann is %+v, %v", all, err)
		}
		if _, err := ann.SessionInfo(w.ctx(), theirs.ID); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
			t.Errorf("info of bob's session by ann: %v", err)
		}
	}
	// If the policy of the new proxy does not start, the handoff must fail.
	config, err := os.ReadFile(w.Path("policy.json"))
	if err == nil {
		err = os.WriteFile(w.Path("policy.json"), []byte("{"), 0o600)
	}
	testkit.Must(t, err)
	serving := w.Only("proxy")
	if r := w.Run("proxy", "--handoff"); r.Code == 0 || !strings.Contains(r.Errout, "the old proxy continues to serve") || !serving.Running() {
		t.Errorf("handoff to a proxy whose policy does not start: %v", r)
	}
	v.ask("the old one serves\n")
	testkit.Must(t, os.WriteFile(w.Path("policy.json"), config, 0o600))
	w.handOff()
	v.ask("and the next\n")

	// If the handoff fails later, a proxy that is started after a crash must use the policy of the one that continued.
	w.Bin = testkit.BuildTagged(t, "faults", "holdfast/proxy", "holdfast/supervisor")
	w.Env = append(slices.Clone(w.Env), "HOLDFAST_POLICY=none", "HOLDFAST_FAULT=snapshot=alter")
	if r := w.Run("proxy", "--handoff"); r.Code == 0 || !strings.Contains(r.Errout, "the two proxies differ") {
		t.Errorf("handoff to a proxy that sees other sessions: %v", r)
	}
	if rules, err := os.ReadFile(w.Path("proxy.policy")); err != nil || !strings.Contains(string(rules), w.policyProgram()) {
		t.Errorf("after the failed handoff the remembered policy is %q, %v", rules, err)
	}
	w.Env = w.Env[:len(w.Env)-2]

	// A session that ends between the last moment of the old proxy and the first one of the new proxy is in the audit.
	old := w.Only("proxy")
	next := w.takesOver("serving")
	w.Gone(old)
	lookup(theirs.PID).Signal(syscall.SIGKILL)
	ended := func(file, kind string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(w.Path(file))
			return slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
				return strings.Contains(line, string(theirs.ID)) && strings.Contains(line, kind)
			})
		}
	}
	testkit.Eventually(t, limit, ended("supervisor.log", "session exited"), "bob's session has ended")
	next.Signal(syscall.SIGCONT)
	testkit.Eventually(t, limit, ended("audit.jsonl", `"exited"`), "the policy has learned of the end")
}

// While the policy is dead or hangs, requests must be refused until it runs again. Running sessions and
// attachments must continue.
func TestPolicyDies(t *testing.T) {
	t.Parallel()
	w := guardedWorld(t)
	ann := w.as(annsToken)
	w.spawn(ann, "s", echoing)
	v := w.attach(ann, "s", client.AttachOptions{})
	v.until("ready\n")
	shells, _ := ann.SessionInfo(w.ctx(), "s")
	back := func(old process) {
		t.Helper()
		testkit.Eventually(t, limit, func() bool {
			_, err := ann.SessionInfo(w.ctx(), "s")
			if code := protocol.CodeOf(err); err != nil && code != protocol.CodePolicyUnavailable {
				t.Fatalf("request without a policy process: %v, want policy_unavailable", err)
			}
			p := w.plugins()
			return err == nil && len(p) == 1 && p[0].PID != old.PID
		}, "another policy process is started")
		v.ask("and on\n")
	}
	old := w.plugins()[0]
	w.Kill(old)
	v.ask("nobody notices\n")
	back(old)

	old = w.plugins()[0]
	w.Stop(old)
	begun := time.Now()
	_, err := ann.SessionInfo(w.ctx(), "s")
	if took := time.Since(begun); protocol.CodeOf(err) != protocol.CodePolicyUnavailable || took > limit/2 {
		t.Errorf("request while the policy hangs: %v after %v", err, took)
	}
	v.ask("nobody notices\n")
	back(old)
	if now, err := ann.SessionInfo(w.ctx(), "s"); err != nil || now.PID != shells.PID || now.State != protocol.StateRunning {
		t.Errorf("the session is %+v, %v", now, err)
	}
}

// A proxy whose policy does not run any more must be told apart from one that does not answer, and can be replaced by one
// without a policy. The session continues.
func TestHandoffFromFailedPolicy(t *testing.T) {
	t.Parallel()
	w := guardedWorld(t)
	ann := w.as(annsToken)
	w.spawn(ann, "s", echoing)
	v := w.attach(ann, "s", client.AttachOptions{})
	v.until("ready\n")
	testkit.Must(t, os.WriteFile(w.Path("policy.json"), []byte("{"), 0o600)) // so that the policy cannot be started again
	w.Kill(w.plugins()[0])
	if r := w.Run("proxy", "doctor"); !strings.Contains(r.Out, "its policy fails") || strings.Contains(r.Out, "does not answer") {
		t.Errorf("doctor: %v", r)
	}
	cmd := w.Command("proxy", "handoff")
	cmd.Env = append(slices.Clone(cmd.Env), "HOLDFAST_POLICY=none")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("handoff: %v, %s", err, out)
	}
	v.ask("and on\n")
	if out, code := w.runAs("", "ls"); code != 0 || !strings.Contains(out, "s-") {
		t.Errorf("ls after the handoff: exit %d, %s", code, out)
	}
}

// A proxy that is started after a crash must use the same policy. If it cannot, it must not serve.
func TestPolicyIsRemembered(t *testing.T) {
	t.Parallel()
	w := guardedWorld(t)
	ann := w.as(annsToken)
	w.spawn(ann, "s", shell("exec sleep 1000"))
	w.spawn(w.dial(client.Options{}), "others", shell("exec sleep 1000"))
	crash := func() {
		t.Helper()
		w.Kill(w.Only("proxy"))
		testkit.Eventually(t, limit, func() bool { return len(w.plugins()) == 0 }, "the policy process has ended with its proxy")
	}
	crash()
	if out, code := w.runAs(annsToken, "ls"); code != 0 || strings.Contains(out, "others") || !strings.Contains(out, "s-") {
		t.Errorf("the list of ann (exit %d) is %q", code, out)
	}
	crash()
	testkit.Must(t, os.WriteFile(w.Path("proxy.policy"), []byte("{"), 0o600))
	if out, code := w.runAs(annsToken, "ls"); code == 0 || !strings.Contains(out, "proxy.policy") {
		t.Errorf("ls with a broken proxy.policy: exit %d, %q", code, out)
	}
	w.Start(w.Command("proxy", "serve", "--background", "--policy", "none"))
	testkit.Eventually(t, limit, func() bool {
		out, code := w.runAs("", "ls")
		return code == 0 && strings.Contains(out, "others") && strings.Contains(out, "s-")
	}, "without a policy every client sees all sessions")
	if _, err := os.Lstat(w.Path("proxy.policy")); err == nil {
		t.Error("proxy.policy still exists after the policy was removed")
	}
}

// A program that is no policy, or that other users may write, must not be started as a policy, and the error
// must tell the reason.
func TestNoPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	loose := w.Path("loose")
	copyFile := func() {
		b, err := os.ReadFile(w.policyProgram())
		if err == nil {
			err = os.WriteFile(loose, b, 0o777)
		}
		if err == nil {
			err = os.Chmod(loose, 0o777)
		}
		testkit.Must(t, err)
	}
	copyFile()
	for _, tt := range []struct {
		name string
		args []string
		says string
	}{
		{"none there", []string{"--policy", w.Path("nothing")}, "nothing"},
		{"anybody's", []string{"--policy", loose}, "loose"},
		{"no policy", []string{"--policy", "/bin/true"}, "true"},
		{"another program", []string{"--policy", w.policyProgram(), "--policy-sha256", strings.Repeat("0", 64)}, "sum"},
		{"without what it reads", []string{"--policy", w.policyProgram()}, "CONFIG"},
	} {
		r := w.Run("proxy", append([]string{"serve"}, tt.args...)...)
		if r.Code == 0 || !strings.Contains(r.Errout, tt.says) || !strings.Contains(r.Errout, "policy") {
			t.Errorf("%s: %v", tt.name, r)
		}
	}
	if r := w.Run("proxy", "gate", "--handoff", "--policy", w.Path("nothing")); r.Code == 0 || !strings.Contains(r.Errout, "there is no policy") {
		t.Errorf("the handoff of a gate to one without its policy: %v", r)
	}
	w.Start(w.Command("proxy", "serve", "--background"))
	for _, program := range []string{w.Path("nothing"), loose, "/bin/true"} {
		cmd := w.Command("proxy", "handoff")
		cmd.Env = append(slices.Clone(cmd.Env), "HOLDFAST_POLICY="+program)
		if out, err := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 78 {
			t.Errorf("the handoff to a proxy with the policy %s: %v, %s, want exit 78", program, err, out)
		}
	}
	if _, err := os.Lstat(w.Path("proxy.policy")); err == nil {
		t.Error("proxy.policy exists although no policy has started")
	}
}

// If a policy is added in a handoff, it must be asked about the connected clients. If the policy is removed,
// clients must keep the users that it has given them.
func TestPolicyBegins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.dial(client.Options{})
	v := w.echo(c, "s")
	v.ask("no policy\n")
	set := func(change func(config map[string]any)) {
		t.Helper()
		config := policyConfig(w.Dir)
		change(config)
		rules, err := json.Marshal(config)
		if err == nil {
			err = os.WriteFile(w.Path("policy.json"), rules, 0o600)
		}
		testkit.Must(t, err)
	}
	setting := func(name string) {
		t.Helper()
		text := fmt.Sprintf(`{"policy": %q, "policy_config": %q}`, name, w.Path("policy.json"))
		testkit.Must(t, os.WriteFile(w.Path("holdfast.json"), []byte(text), 0o600))
	}
	set(func(map[string]any) {})
	setting(w.policyProgram())
	w.handOff()
	v.ask("the operator, by its user\n")

	// Without a policy, ann must keep her workspace.
	p := w.client(api.Hello{Protocol: protocol.Supported(), Token: annsToken})
	if m, err := p.receive(); err != nil || m.MessageType() != "welcome" {
		t.Fatal(m, err)
	}
	setting("none")
	w.handOff()
	v.ask("no policy\n")
	testkit.Must(t, p.send(api.Info{Request: protocol.Request{RequestID: "i"}, SessionID: "s"}))
	if m, err := p.receive(); err != nil || protocol.CodeOf(errorOf(m)) != protocol.CodeSessionNotFound {
		t.Errorf("info of a session of the operator by ann: %+v, %v", m, err)
	}

	// If the next policy does not know the user of a connected client, the client must be refused, and its
	// session must continue.
	set(func(config map[string]any) { config["users"] = config["users"].([]map[string]any)[:2] })
	setting(w.policyProgram())
	info, err := c.SessionInfo(w.ctx(), "s")
	testkit.Must(t, err)
	w.handOff()
	testkit.Eventually(t, limit, func() bool {
		_, err := c.SessionInfo(w.ctx(), "s")
		return protocol.CodeOf(err) == protocol.CodeUnauthorized
	}, "the client is refused")
	if !slices.Contains(pids(), info.PID) {
		t.Error("the session of the refused client has ended")
	}
}

// errorOf returns the error in a message, or nil.
func errorOf(m protocol.Message) error {
	if e, ok := m.(*api.Error); ok {
		return &e.Error
	}
	return nil
}
