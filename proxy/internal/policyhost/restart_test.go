//go:build unix

package policyhost

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
	"holdfast/shared/testkit"
)

// A program that is killed is started again, each time after a longer wait.
func TestCrashes(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.FirstWait, cfg.LastWait = 2*time.Millisecond, 8*time.Millisecond
	h, p := s.start(cfg)
	for range 5 {
		p.kill(t, syscall.SIGKILL)
		testkit.Within(t, limit, "the end of the program", p.gone)
		p = s.next()
		running(t, h)
	}
	if err := auth(t, h, ""); err != nil {
		t.Error(err)
	}
	var waits []any
	for _, line := range s.log.with("policy ended") {
		waits = append(waits, line["wait_ms"])
		if line["reason"] != "signal: killed" {
			t.Errorf("got %v, want the reason signal: killed", line)
		}
	}
	if want := "[2 4 8 8 8]"; fmt.Sprint(waits) != want {
		t.Errorf("got waits of %v ms, want %s", waits, want)
	}
	if got := h.Stats(); got.Starts != 6 || got.Crashes != 5 {
		t.Errorf("stats: %+v", got)
	}
}

// After a program has lived long enough, the wait is the first one again.
func TestBackoffIsReset(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.FirstWait, cfg.Settled = 2*time.Millisecond, time.Nanosecond
	_, p := s.start(cfg)
	for range 3 {
		p.kill(t, syscall.SIGKILL)
		p = s.next()
	}
	for _, line := range s.log.with("policy ended") {
		if line["wait_ms"] != 2.0 {
			t.Errorf("got %v, want wait_ms 2", line)
		}
	}
}

// While the program does not run, a question fails at once, and the error has the time of the next start. Close does
// not wait for that.
func TestDown(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.FirstWait = time.Hour
	h, p := s.start(cfg)
	asked := make(chan error, 1)
	go func() { asked <- auth(t, h, "wait") }()
	testkit.Within(t, limit, "the question", p.asked)
	before := time.Now()
	p.kill(t, syscall.SIGKILL)
	down(t, h)
	wantUnavailable(t, "asked before", testkit.Within(t, limit, "an answer", asked))
	s.log.wait(t, "policy ended", 1)
	for range 1000 { // many failures, which are not logged
		e := wantUnavailable(t, "down", auth(t, h, ""))
		back := time.Duration(e.RetryAfterMS) * time.Millisecond
		if passed := time.Since(before); back > time.Hour+limit || back < time.Hour-passed {
			t.Fatalf("got retry after %v, want the rest of an hour, %v after the kill", back, passed)
		}
	}
	if lines := s.log.with("policy does not answer; its decisions are refusals"); len(lines) != 0 {
		t.Errorf("got %v, want only the log line of its end", lines)
	}
	if got := h.Stats().Methods["authenticate"]; got.Calls != 1001 || got.Failures != 1001 || got.Timeouts != 0 {
		t.Errorf("stats: %+v", got)
	}
}

// A program of another version is refused at the first start. If it is installed later, the start is repeated until
// the program is replaced.
func TestVersions(t *testing.T) {
	s := newStage(t, "newer")
	_, err := Start(testkit.Soon(t), s.config())
	e := protocol.AsError(err)
	if e.Code != protocol.CodeProtocolMismatch || e.Local == nil || e.Remote == nil || e.Local.Max != policy.Version || e.Remote.Min != policy.Version+1 {
		t.Fatalf("got %+v, want protocol_mismatch with both ranges", err)
	}
	want := fmt.Sprintf("no common version with the policy %s: the proxy speaks 1-1, the policy speaks 2-2; upgrade the proxy", programPath(t))
	if e.Message != want {
		t.Errorf("got %q, want %q", e.Message, want)
	}
	testkit.Within(t, limit, "the end of the program", s.next().gone)

	s.role("served")
	h, p := s.start(s.config())
	s.role("newer")
	p.kill(t, syscall.SIGKILL)
	s.log.wait(t, "policy could not be restarted", 3)
	wantUnavailable(t, "meanwhile", auth(t, h, ""))
	s.role("served")
	running(t, h)
	if err := auth(t, h, ""); err != nil {
		t.Error(err)
	}
}

// The children of a program end with it, and do not delay anything by holding its output open.
func TestChildren(t *testing.T) {
	s := newStage(t, "served")
	child := filepath.Join(s.dir, "child.json")
	s.writeRole(child, "silent")
	cfg := s.config()
	cfg.Path = filepath.Join(s.dir, "policy.sh")
	script := fmt.Sprintf("#!/bin/sh\n%s=%s %s &\nexec %[3]s\n", configEnv, child, programPath(t))
	testkit.Must(t, os.WriteFile(cfg.Path, []byte(script), 0o700))
	h, _ := s.start(cfg)
	s.next()
	testkit.Must(t, h.Close())
	h, one := s.start(cfg)
	two := s.next()
	main := one
	if two.PID == two.Group { // this is the process that the host has started
		main = two
	}
	main.kill(t, syscall.SIGKILL)
	testkit.Within(t, limit, "the end of the one", one.gone)
	testkit.Within(t, limit, "the end of the other", two.gone)
	s.next()
	s.next()
	running(t, h)
}

// The next proxy starts its own policy before that of the old one ends.
func TestTwoHosts(t *testing.T) {
	s := newStage(t, "served")
	old, p := s.start(s.config())
	next, q := s.start(s.config())
	if p.PID == q.PID {
		t.Errorf("both have process %d", p.PID)
	}
	for _, h := range []*Host{old, next} {
		if err := auth(t, h, ""); err != nil {
			t.Error(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	testkit.Within(t, limit, "the end of the old one", p.gone)
	if err := auth(t, next, ""); err != nil {
		t.Error(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "plugin-dir*")); len(left) != 0 {
		t.Errorf("directories remain: %v", left)
	}
}

// Close ends even a program that is stopped.
func TestCloseStopped(t *testing.T) {
	s := newStage(t, "served")
	cfg := s.config()
	cfg.Grace = 50 * time.Millisecond
	h, p := s.start(cfg)
	p.kill(t, syscall.SIGSTOP)
	if err := h.Observe(testkit.Soon(t), policy.Event{}); err != nil { // the program does not receive the event
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	testkit.Within(t, limit, "the end of the program", p.gone)
}

// A program that does not end with its connection receives SIGTERM before it is killed.
func TestCloseLingering(t *testing.T) {
	s := newStage(t, "lingers")
	cfg := s.config()
	cfg.Grace = 2 * time.Second
	h, p := s.start(cfg)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	testkit.Within(t, limit, "the end of the program", p.gone)
	if len(p.told) != 1 {
		t.Error("the program has not received SIGTERM")
	}
}

// The directory of a host that was killed is removed by the next one, and that of a running host is not.
func TestSweepSockets(t *testing.T) {
	s := newStage(t, "served")
	_, _ = s.start(s.config())
	lives, _ := filepath.Glob(filepath.Join(s.dir, "plugin-dir*"))
	left := filepath.Join(s.dir, "plugin-dir0")
	if err := os.Mkdir(left, 0o700); err != nil || len(lives) != 1 {
		t.Fatalf("%v, %v", lives, err)
	}
	past := time.Now().Add(-2 * abandoned)
	for _, dir := range []string{left, lives[0]} {
		testkit.Must(t, os.Chtimes(dir, past, past))
	}
	sweepSockets(s.dir)
	if got, _ := filepath.Glob(filepath.Join(s.dir, "plugin-dir*")); len(got) != 1 || got[0] != lives[0] {
		t.Errorf("got %v, want %v", got, lives)
	}
}
