//go:build unix

package operate

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/protocol/gate"
	"holdfast/proxy/internal/cli"
	"holdfast/proxy/internal/exitcode"
	"holdfast/proxy/internal/fleet/credential"
	"holdfast/proxy/internal/fleet/member"
	"holdfast/shared/config"
	"holdfast/shared/socket"
	"holdfast/shared/sysexits"
	"holdfast/shared/testkit"
)

const limit = 30 * time.Second

// listenAsGate returns the files of a new gate, a listener that has its certificate, and the text with which a host joins there.
func listenAsGate(t *testing.T) (store *credential.Store, ln net.Listener, text string) {
	t.Helper()
	store, err := credential.Open(filepath.Join(t.TempDir(), "gate"))
	testkit.Must(t, err)
	ln, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{store.Certificate()}, MinVersion: tls.VersionTLS13})
	testkit.Must(t, err)
	testkit.Must(t, store.SetAddress(ln.Addr().String(), time.Now()))
	entry, err := store.NewJoinEntry(gate.ForHosts, time.Hour, time.Now())
	testkit.Must(t, err)
	return store, ln, entry.String()
}

// A gate that admits the host and closes the connection without a reply knows the host. The same command
// joins again with the same key.
func TestJoinIsRepeated(t *testing.T) {
	store, ln, text := listenAsGate(t)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			answerJoin(t, store, conn, n > 0)
		}
	})
	path := filepath.Join(t.TempDir(), joinFile)
	ctx := testkit.Soon(t)
	err := joinGate(ctx, path, &joinFlags{name: "red", labels: map[string]string{"a": "b"}}, text)
	if !errors.Is(err, member.ErrNoAnswer) || exitcode.Of(err) != sysexits.Unavailable {
		t.Errorf("without a reply: %v, code %d", err, exitcode.Of(err))
	}
	first, err := member.Load(path)
	if err != nil || !first.IsPending {
		t.Fatalf("without a reply the state is pending %v, %v", first.IsPending, err)
	}
	if err := joinGate(ctx, path, &joinFlags{}, text); err != nil {
		t.Fatalf("the second attempt: %v", err)
	}
	second, err := member.Load(path)
	if err != nil || second.IsPending || second.Seed != first.Seed || second.Name != "red" || second.Labels["a"] != "b" {
		t.Errorf("after the second attempt the state is pending %v, name %q, labels %v, same key %v, %v",
			second.IsPending, second.Name, second.Labels, second.Seed == first.Seed, err)
	}
	if members, err := store.Members(); err != nil || len(members.Hosts) != 1 {
		t.Errorf("the gate knows %d hosts, %v", len(members.Hosts), err)
	}
	if err := joinGate(ctx, path, &joinFlags{}, text); exitcode.Of(err) != sysexits.Usage {
		t.Errorf("a host that has joined: %v", err)
	}
}

// A gate that cannot store the host now may have stored its key. The command ends with the code for a later attempt, and the
// same command joins again with the same key.
func TestJoinWhileGateIsBusy(t *testing.T) {
	_, ln, text := listenAsGate(t)
	defer func() { _ = ln.Close() }()
	keys := make(chan string, 2)
	go func() {
		for _, answer := range []protocol.Message{gate.Refused{Code: gate.RefusedBusy, Message: "full"}, gate.Joined{}} {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if m, err := gate.Read(conn, gate.MaxFirst); err == nil {
				keys <- m.(*gate.Join).Key
				_ = gate.Write(conn, answer)
			}
			_ = conn.Close()
		}
	}()
	path := filepath.Join(t.TempDir(), joinFile)
	if err := joinGate(testkit.Soon(t), path, &joinFlags{name: "red"}, text); exitcode.Of(err) != sysexits.TempFail || !strings.Contains(err.Error(), "full") {
		t.Errorf("while the gate is busy: %v, code %d", err, exitcode.Of(err))
	}
	if err := joinGate(testkit.Soon(t), path, &joinFlags{}, text); err != nil {
		t.Errorf("the second attempt: %v", err)
	}
	if first, second := testkit.Within(t, limit, "a join", keys), testkit.Within(t, limit, "another join", keys); first != second {
		t.Errorf("the host joins with key %s and then %s", first, second)
	}
}

// While the gate has not answered a join, another join of the host is refused, so that it does not replace the key.
func TestJoinTwice(t *testing.T) {
	_, ln, text := listenAsGate(t)
	defer func() { _ = ln.Close() }()
	asked, answer := make(chan struct{}), make(chan struct{})
	go func() {
		for isFirst := true; ; isFirst = false {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = gate.Read(conn, gate.MaxFirst)
			if isFirst {
				close(asked)
				<-answer
				_ = gate.Write(conn, gate.Joined{})
			} // others are not answered
			_ = conn.Close()
		}
	}()
	path := filepath.Join(t.TempDir(), joinFile)
	first := make(chan error, 1)
	go func() { first <- joinGate(testkit.Soon(t), path, &joinFlags{name: "red"}, text) }()
	testkit.Within(t, limit, "the first join", asked)
	if err := joinGate(testkit.Soon(t), path, &joinFlags{name: "blue"}, text); exitcode.Of(err) != sysexits.TempFail {
		t.Errorf("another join meanwhile: %v, code %d", err, exitcode.Of(err))
	}
	close(answer)
	if err := testkit.Within(t, limit, "the first join", first); err != nil {
		t.Error(err)
	}
	if s, err := member.Load(path); err != nil || s.Name != "red" || s.IsPending {
		t.Errorf("the host is %q, pending %v, %v", s.Name, s.IsPending, err)
	}
}

// answerJoin plays a gate for one connection.
func answerJoin(t *testing.T, store *credential.Store, conn net.Conn, hasReply bool) {
	defer func() { _ = conn.Close() }()
	m, err := gate.Read(conn, gate.MaxFirst)
	join, ok := m.(*gate.Join)
	if err == nil && ok {
		_, err = store.Join(*join, time.Now())
	}
	if err != nil || !ok {
		t.Errorf("the gate receives %v, %v", m, err)
		return
	}
	if hasReply {
		if err := gate.Write(conn, gate.Joined{}); err != nil {
			t.Error(err)
		}
	}
}

// An agent that runs already is not taken for the agent that was started, and is waited for before this host joins again.
func TestAwaitAgent(t *testing.T) {
	dirs := config.Dirs{State: testkit.Dir(t), Runtime: testkit.Dir(t)}
	ln, err := socket.Listen(dirs.Socket(cli.AgentSocket), socket.Options{})
	testkit.Must(t, err)
	accepted := make(chan struct{})
	var asked atomic.Int64
	go func() {
		defer close(accepted)
		acceptCommands(t.Context(), ln, nil, &member.Link{}, func() bool { asked.Add(1); return false })
	}()
	exited := make(chan struct{})
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	if err := awaitAgent(within(limit), dirs, os.Getpid(), exited); err != nil {
		t.Errorf("the agent that was started: %v", err)
	}
	if err := awaitAgent(within(50*time.Millisecond), dirs, os.Getpid()+1, exited); err == nil {
		t.Error("another agent is taken for the one that was started")
	}
	state, err := member.NewState(gate.Entry{Addresses: []string{"127.0.0.1:1"}}, "x", nil)
	if err == nil {
		err = state.Save(filepath.Join(dirs.State, joinFile))
	}
	testkit.Must(t, err)
	if err := awaitConnected(t.Context(), dirs, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "not connected yet") {
		t.Errorf("the agent is not connected: %v", err)
	}
	close(exited)
	if err := awaitAgent(within(limit), dirs, os.Getpid()+1, exited); err != nil {
		t.Errorf("the process that was started has ended, because an agent runs: %v", err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	gaveUp, before := make(chan error, 1), asked.Load()
	go func() { gaveUp <- awaitNoAgent(ctx, dirs, limit) }()
	testkit.Eventually(t, limit, func() bool { return asked.Load() > before }, "the agent answers")
	giveUp()
	if err := testkit.Within(t, limit, "the wait ends", gaveUp); err == nil || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("while an agent runs: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	<-accepted
	if err := awaitNoAgent(t.Context(), dirs, limit); err != nil {
		t.Errorf("without an agent: %v", err)
	}
	if err := awaitAgent(within(limit), dirs, os.Getpid(), exited); err == nil {
		t.Error("an agent that has ended is taken for one that runs")
	}
}
