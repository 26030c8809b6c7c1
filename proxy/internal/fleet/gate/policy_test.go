//go:build unix

package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/fleet/record"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

// rules is a policy. The token USER@WORKSPACE is that of a user, who may do all if the name is not "guest".
type rules struct {
	mu     sync.Mutex
	events []policy.Event
}

func (*rules) Authenticate(_ context.Context, c policy.Credentials) (policy.Principal, error) {
	user, workspace, isUser := strings.Cut(c.Token, "@")
	switch {
	case c.Transport != policy.TransportGate:
		return policy.Principal{}, errors.New("another transport")
	case c.Token == "broken":
		return policy.Principal{}, errors.New("the policy does not work")
	case isUser:
		return policy.Principal{User: user, Workspace: workspace, Roles: []string{"r"}}, nil
	case c.UID == os.Getuid() && c.Token == "":
		return policy.Principal{User: "operator", All: true}, nil
	}
	return policy.Principal{}, policy.Refuse(policy.CodeUnauthorized, "nobody has this token")
}

func (*rules) ResolveTask(context.Context, policy.TaskRequest) (policy.Task, error) {
	return policy.Task{}, policy.Refuse(policy.CodeTaskNotFound, "")
}

func (*rules) Authorize(_ context.Context, a policy.Access) error {
	if a.Principal.User == "guest" || !a.Principal.All && a.Labels[protocol.LabelWorkspace] != a.Principal.Workspace {
		return policy.Refuse(policy.CodePermissionDenied, "guests may do nothing here")
	}
	return nil
}

func (r *rules) Observe(_ context.Context, e policy.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	return nil
}

// refusals returns the refusals that the policy was told.
func (r *rules) refusals() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == policy.EventRefused {
			n++
		}
	}
	return n
}

// lines collects a log.
type lines struct{ testkit.Log }

// security returns the number of security events with a message.
func (l *lines) security(t *testing.T, message string) (n int) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		var e struct {
			Security bool   `json:"security"`
			Message  string `json:"message"`
		}
		testkit.Must(t, json.Unmarshal([]byte(line), &e))
		if e.Security && e.Message == message {
			n++
		}
	}
	return n
}

// A guardedBench has a gate with a policy and the hosts "common", "of-a" and "of-b". The host "common" has
// a session of the workspaces a and b, and one of none; the others belong to a workspace.
type guardedBench struct {
	*bench
	rules *rules
	lines *lines
	hosts map[string]*host
}

func newGuardedBench(t *testing.T) *guardedBench {
	t.Helper()
	g := &guardedBench{rules: &rules{}, lines: &lines{}, hosts: map[string]*host{}}
	g.bench = &bench{t: t, dir: testkit.Dir(t), address: testkit.FreeAddress(t), options: Options{Policy: g.rules}, log: zerolog.New(g.lines)}
	g.start()
	for name, labels := range map[string][]string{"common": {"a", "b", ""}, "of-a": {"a"}, "of-b": {"b"}} {
		g.hosts[name] = g.join(name)
		g.tell(name, labels)
	}
	return g
}

// tell publishes one session for each of the workspaces, and the label of a host of one workspace.
func (g *guardedBench) tell(name string, workspaces []string) {
	g.t.Helper()
	h, sum := g.hosts[name], record.Sum{}
	for _, w := range workspaces {
		s := protocol.SessionInfo{ID: protocol.SessionID("secret-of-" + w), State: protocol.StateRunning, Argv: []string{"run-" + w}}
		if w != "" {
			s.Labels, s.ID = map[string]string{protocol.LabelWorkspace: w}, "build"+protocol.WorkspaceSuffix(w)
		}
		raw := record.Of(s)
		sum.Toggle(record.SumOf(raw))
		h.publish(g.t, record.KindChange, record.Encode(record.Change{Stamp: record.Stamp{Epoch: 2, Seq: h.seq.Add(1)}, ID: s.ID, Session: raw}))
	}
	m := record.Host{Stamp: record.Stamp{Epoch: 2, Seq: h.seq.Add(1)}, Link: h.links.Load(), IsServing: true, Count: len(workspaces), Sum: sum.String()}
	if len(workspaces) == 1 {
		m.Labels = map[string]string{protocol.LabelWorkspace: workspaces[0]}
	}
	h.publish(g.t, record.KindHost, record.Encode(m))
	testkit.Eventually(g.t, limit, func() bool { return g.info(name).Sessions == len(workspaces) }, "the gate knows the sessions of "+name)
}

// A client sees the hosts and sessions of its workspace, and the bytes that it receives tell nothing of
// another one. Each refusal is a security event and is told to the policy.
func TestPolicyWorkspaces(t *testing.T) {
	g := newGuardedBench(t)
	for _, tt := range []struct {
		name            string
		token, user     string
		hosts, sessions string
		never           []string
	}{
		{"of a", "", "ann@a", "common:1 of-a:1", "common/build-a of-a/build-a", []string{"run-b", "of-b", "secret-of"}},
		{"of b", "", "bob@b", "common:1 of-b:1", "common/build-b of-b/build-b", []string{"run-a", "of-a", "secret-of"}},
		{"of no workspace", "", "carl@", "common:1", "common/secret-of-", []string{"run-a", "run-b", "of-a", "of-b"}},
		{"with both tokens", g.client.Secret, "ann@a", "common:1 of-a:1", "common/build-a of-a/build-a", []string{"run-b", "of-b"}},
		{"the operator", g.client.Secret, "", "common:3 of-a:1 of-b:1", "common/build-a common/build-b common/secret-of- of-a/build-a of-b/build-b", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, m, err := g.ask(gate.Hosts{Token: tt.token, UserToken: tt.user})
			testkit.Must(t, err)
			var hosts, sessions []string
			for _, h := range m.(*gate.HostList).Hosts {
				hosts = append(hosts, h.Name+":"+string('0'+rune(h.Sessions)))
				if h.Sessions != h.Running {
					t.Errorf("%s has %d sessions, of which %d run", h.Name, h.Sessions, h.Running)
				}
			}
			_, all, err := g.ask(gate.Sessions{Token: tt.token, UserToken: tt.user})
			testkit.Must(t, err)
			for _, s := range all.(*gate.SessionList).Sessions {
				id := string(s.ID)
				for _, w := range []string{"a", "b"} {
					id = strings.ReplaceAll(id, string(protocol.WorkspaceSuffix(w)), "-"+w)
				}
				sessions = append(sessions, s.Host+"/"+id)
			}
			if got := strings.Join(hosts, " "); got != tt.hosts {
				t.Errorf("hosts are %q, want %q", got, tt.hosts)
			}
			if got := sortedWords(sessions); got != sortedWords(strings.Fields(tt.sessions)) {
				t.Errorf("sessions are %q, want %q", got, tt.sessions)
			}
			received, _ := json.Marshal([]any{m, all})
			for _, word := range tt.never {
				if bytes.Contains(received, []byte(word)) {
					t.Errorf("the client receives %q: %s", word, received)
				}
			}
		})
	}

	_, m, err := g.ask(gate.Sessions{UserToken: "ann@a", ID: "build"})
	if err != nil || len(m.(*gate.SessionList).Sessions) != 2 {
		t.Errorf("the short name of a's sessions: %+v, %v", m, err)
	}
	_, m, err = g.ask(gate.Sessions{UserToken: "ann@a", ID: "build" + protocol.WorkspaceSuffix("b")})
	if err != nil || len(m.(*gate.SessionList).Sessions) != 0 {
		t.Errorf("the full name of b's sessions: %+v, %v", m, err)
	}

	refused, told := g.lines.security(t, "connection refused"), g.rules.refusals()
	for _, tt := range []struct {
		name string
		m    protocol.Message
		want gate.Refusal
	}{
		{"no token", gate.Hosts{}, gate.RefusedUnauthorized},
		{"an unknown token", gate.Hosts{UserToken: "x"}, gate.RefusedUnauthorized},
		{"an unknown token to enter", gate.Enter{UserToken: "x", Host: "common"}, gate.RefusedUnauthorized},
		{"a guest", gate.Sessions{UserToken: "guest@a"}, gate.RefusedDenied},
		{"a guest asks for hosts", gate.Hosts{UserToken: "guest@a"}, gate.RefusedDenied},
		{"a policy that does not work", gate.Hosts{UserToken: "broken"}, gate.RefusedBusy},
	} {
		if _, _, err := g.ask(tt.m); !says(err, tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		refused, told = refused+1, told+1
		testkit.Eventually(t, limit, func() bool { return g.lines.security(t, "connection refused") == refused && g.rules.refusals() == told }, tt.name+" is a security event")
	}

	for isAgent, want := range map[bool]gate.Refusal{false: gate.RefusedUnknownHost, true: gate.RefusedDenied} {
		_, _, none := g.ask(gate.Enter{UserToken: "ann@a", Host: "nobody", Agent: isAgent})
		_, _, hidden := g.ask(gate.Enter{UserToken: "ann@a", Host: "of-b", Agent: isAgent})
		if !says(hidden, want) || strings.ReplaceAll(hidden.Error(), "of-b", "nobody") != none.Error() {
			t.Errorf("a hidden host, agent: %v: %v; an unknown one: %v", isAgent, hidden, none)
		}
	}
	testkit.Eventually(t, limit, func() bool { return g.lines.security(t, "request refused") == 1 }, "a hidden host is a security event")
}

func sortedWords(words []string) string {
	m := map[string]bool{}
	for _, w := range words {
		m[w] = true
	}
	b, _ := json.Marshal(m) // sorts the keys
	return string(b)
}

// A host learns who the client is. A client that may start no session starts no proxy.
func TestPolicyEnter(t *testing.T) {
	g := newGuardedBench(t)
	for _, tt := range []struct {
		user   string
		starts bool
	}{{"ann@a", true}, {"guest@a", false}} {
		client, arrived, m := g.enterAs(tt.user, "common", tt.starts)
		user, workspace, _ := strings.Cut(tt.user, "@")
		if p := m.Principal; p == nil || p.User != user || p.Workspace != workspace || p.All || len(p.Roles) != 1 {
			t.Errorf("the dial for %s is %+v of %+v", tt.user, m, m.Principal)
		}
		carries(t, client, arrived)
	}
}

// What each participant of the bus sees of the others. With the credentials of a host of workspace a, a
// program that subscribes to everything is refused, and receives nothing while the other hosts publish and
// the gate talks to them. A client's credentials do not open the bus.
func TestBusIsolation(t *testing.T) {
	g := newGuardedBench(t)
	h := g.hosts["of-a"]
	h.bus.Close() // otherwise the host would connect again, and the gate would close the connection of the program
	conn, password, err := g.prove(h.key, h.pair)
	testkit.Must(t, err)
	_ = conn.SetDeadline(time.Now().Add(limit))
	in := bufio.NewScanner(conn)
	// say sends a line, and returns what the server sends until it has taken the line.
	say := func(line string) (answer []string) {
		t.Helper()
		if _, err := fmt.Fprintf(conn, "%s\r\nPING\r\n", line); err != nil {
			t.Fatal(err)
		}
		for in.Scan() && in.Text() != "PONG" {
			if in.Text() != "PING" && !strings.HasPrefix(in.Text(), "INFO ") {
				answer = append(answer, in.Text())
			}
		}
		if in.Text() != "PONG" {
			t.Fatalf("the connection ends after %q: %v", line, in.Err())
		}
		return answer
	}
	if answer := say(fmt.Sprintf(`CONNECT {"verbose":false,"user":%q,"pass":%q}`, h.key, password)); len(answer) > 0 {
		t.Fatalf("the server answers %q", answer)
	}
	for i, subject := range []string{">", "*.*.*.*", "holdfast.>", "holdfast.up.>", "holdfast.down.*.*", "holdfast.gates.>", "_INBOX.>", "$SYS.>"} {
		if answer := say(fmt.Sprintf("SUB %s %d", subject, i)); len(answer) != 1 || !strings.HasPrefix(answer[0], "-ERR 'Permissions Violation for Subscription") {
			t.Errorf("%s: the server answers %q", subject, answer)
		}
	}
	g.tell("of-b", []string{"b"})
	g.tell("common", []string{"a", "b", ""})
	client, arrived, _ := g.enterAs("bob@b", "of-b", true)
	carries(t, client, arrived)
	if heard := say("UNSUB 99"); len(heard) > 0 {
		t.Errorf("the host receives %q", heard)
	}
	for _, m := range []protocol.Message{gate.Bus{Key: g.client.Secret}, gate.Bus{Key: "ann@a"}, gate.Peer{Address: "a:1"}} {
		asking, answer, err := g.ask(m)
		if _, isChallenge := answer.(*gate.Challenge); err == nil && isChallenge {
			testkit.Must(t, gate.Write(asking, gate.Proof{Signature: []byte(g.client.Secret)}))
			_, err = gate.Read(asking, gate.MaxAnswer)
		}
		if !says(err, gate.RefusedUnauthorized) {
			t.Errorf("%s of a client: %v", m.MessageType(), err)
		}
	}
}

// enterAs lets a client with a token of its own enter a host, and returns both ends.
func (g *guardedBench) enterAs(user, name string, starts bool) (client, arrived net.Conn, m record.Dial) {
	g.t.Helper()
	client = g.dial()
	testkit.Must(g.t, gate.Write(client, gate.Enter{UserToken: user, Host: name, Start: true}))
	m = testkit.Within(g.t, limit, "the dial", g.hosts[name].dials)
	if m.Start != starts {
		g.t.Errorf("the dial is %+v", m)
	}
	arrived = g.dial()
	testkit.Must(g.t, gate.Write(arrived, gate.Arrive{Ticket: m.Ticket}))
	if _, err := gate.Read(client, gate.MaxAnswer); err != nil {
		g.t.Fatal(err)
	}
	return client, arrived, m
}

// A client that waits for a host whose first record has not come yet does not enter the host if the record tells another
// workspace.
func TestHostOfAnotherWorkspaceReturns(t *testing.T) {
	g, key := bareGate(t), newKey(t)
	g.dir.Join(key, "x")
	principal := &protocol.Principal{User: "ann", Workspace: "a"}
	m := &gate.Enter{Host: "x"}
	if !g.mayEnter(nil, principal, m) {
		t.Error("a host without a record is refused")
	}
	if _, _, _, mayReturn := g.reach(principal, m); !mayReturn {
		t.Error("the client does not wait for the host")
	}
	about := record.Host{Stamp: record.Stamp{Epoch: 1, Seq: 1}, Link: 1, Labels: map[string]string{protocol.LabelWorkspace: "b"}}
	g.dir.Host(key, g.address, about, time.Now())
	if conn, code, why, mayReturn := g.reach(principal, m); conn != nil || code != gate.RefusedUnknownHost || why != unknownHost("x") || mayReturn {
		t.Errorf("the client is told %s, %q, may try again: %v", code, why, mayReturn)
	}
}
