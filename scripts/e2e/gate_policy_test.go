//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/client"
	"holdfast/shared/testkit"
)

// withPolicy writes the configuration of the example of a policy, and returns the flags that select both.
func (w *world) withPolicy() []string {
	w.T.Helper()
	b, err := json.Marshal(policyConfig(w.Dir))
	if err == nil {
		err = os.WriteFile(w.Path("policy.json"), b, 0o600)
	}
	testkit.Must(w.T, err)
	return []string{"--policy", w.policyProgram(), "--policy-config", w.Path("policy.json")}
}

// A user runs commands as a client that the policy of a gate knows by its own token.
type user struct {
	f           *fleet
	token, text string
}

func (u user) run(args ...string) (out string, code int) {
	u.f.T.Helper()
	cmd := u.f.Command("proxy", args...)
	cmd.Env = append(slices.Clone(cmd.Env), "HOLDFAST_TOKEN="+u.token, "HOLDFAST_GATE="+u.text)
	b, err := cmd.CombinedOutput()
	if _, isExit := err.(*exec.ExitError); err != nil && !isExit {
		u.f.T.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// Two workspaces share a host of a gate with a policy. Whatever request a client of one sends through the
// gate, it must learn nothing about the other. The host's policy decides about the user that the gate has
// established. A host without a policy must refuse all users of such a gate.
func TestGatePolicy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "red", "blue")
	red := f.hosts["red"]
	red.Start(red.Command("proxy", append([]string{"serve", "--background"}, red.withPolicy()...)...))
	f.await("red", "ready")
	f.die()
	f.serve(f.withPolicy()...)
	f.await("red", "ready")
	f.await("blue", "idle") // otherwise a client of blue may be refused because the host has not connected yet

	text := strings.TrimSpace(f.Must("proxy", "gate", "client-token", "--without-token"))
	ann, bob := user{f, annsToken, text}, user{f, bobsToken, text}
	names := map[string]string{}
	for name, u := range map[string]user{"ann": ann, "bob": bob} {
		out, code := u.run("new", "-d", "--on", "red", "--id", "build", "--", "sh", "-c", "echo word of "+name+"; exec cat")
		if names[name] = strings.TrimSpace(out); code != 0 || !strings.HasPrefix(out, "red/build-") {
			t.Fatalf("new of %s: %d, %s", name, code, out)
		}
	}
	want := []string{names["ann"] + ":running", names["bob"] + ":running"}
	slices.Sort(want)
	f.awaitStates(strings.Join(want, " ")) // the gate's own token belongs to the operator, who sees all sessions

	for _, tt := range []struct {
		name          string
		as            user
		args          []string
		code          int
		says, saysNot string
	}{
		{"the list of all", ann, []string{"ls", "--all"}, 0, names["ann"], names["bob"]},
		{"the list of all of bob", bob, []string{"ls", "--all"}, 0, names["bob"], names["ann"]},
		{"the list of the host", ann, []string{"ls", "--on", "red"}, 0, "word of ann", "word of bob"},
		{"the hosts", ann, []string{"hosts", "--json"}, 0, `"sessions": 1`, `"sessions": 2`},
		{"a short name", ann, []string{"screen", "build"}, 0, "word of ann", "word of bob"},
		{"a name with the host", bob, []string{"screen", "red/build"}, 0, "word of bob", "word of ann"},
		{"the screen of another workspace", ann, []string{"screen", names["bob"]}, 66, "no session", "word of bob"},
		{"the end of another workspace", ann, []string{"kill", names["bob"]}, 66, "no session", "word of bob"},
		{"a short name of another workspace", ann, []string{"info", strings.TrimPrefix(names["bob"], "red/")}, 66, "neither on this host nor", "word of bob"},
		{"an unknown token", user{f, "x", text}, []string{"ls", "--all"}, 77, "unauthorized", "build"},
		{"no token", user{f, "", text}, []string{"hosts"}, 77, "unauthorized", "red"},
		{"a host without a policy", ann, []string{"new", "-d", "--on", "blue", "--", "true"}, 77, "set the setting policy there", "blue/"},
	} {
		if out, code := tt.as.run(tt.args...); code != tt.code || !strings.Contains(out, tt.says) || strings.Contains(out, tt.saysNot) {
			t.Errorf("%s: %d, want %d with %q and without %q:\n%s", tt.name, code, tt.code, tt.says, tt.saysNot, out)
		}
	}

	o, err := client.ParseGate(text)
	testkit.Must(t, err)
	o.Host = "red"
	c := f.connect(client.Options{Gate: &o, Token: annsToken})
	if _, err := c.Attach(f.ctx(), protocol.SessionID(strings.TrimPrefix(names["bob"], "red/")), client.AttachOptions{}); protocol.CodeOf(err) != protocol.CodeSessionNotFound {
		t.Errorf("attach to a session of another workspace: %v", err)
	}
	v := f.attach(c, strings.TrimPrefix(names["ann"], "red/"), client.AttachOptions{})
	f.relay.cut() // the attachment connects again as the same user
	if _, err := v.Write([]byte("typed by ann\n")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, limit, func() bool {
		out, _ := ann.run("screen", "build")
		return strings.Contains(out, "typed by ann")
	}, "the input arrives")
	rows, err := client.AllSessions(f.ctx(), client.GateOptions{Addresses: o.Addresses, Fingerprint: o.Fingerprint, UserToken: bobsToken}, client.GateFilter{})
	if err != nil || len(rows) != 1 || rows[0].Host+"/"+string(rows[0].ID) != names["bob"] || rows[0].State == string(gate.StateUnknown) {
		t.Errorf("bob's sessions are %+v, %v", rows, err)
	}
}
